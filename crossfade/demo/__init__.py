"""The main job on real pictures: a cloud stand-in, the on-prem server, the gateway, traffic, verdicts."""
