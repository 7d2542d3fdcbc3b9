"""A small, honest model server. Its contract with everything else is HTTP; it imports none of the other packages."""
