"""The games in the shapes that other frameworks ask for. Each file needs the package of its own name, and no other file here."""
