"""The web page of verdicts, pairs and pictures: server-rendered, and nothing that traffic brought is trusted."""
