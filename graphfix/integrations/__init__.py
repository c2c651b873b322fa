"""graphfix inside other tools; each file imports a package that graphfix does not depend on."""
