"""The passes: one module, one pass, one page. Installed as ``graphfix.passes``."""

if __name__ == "passes":
    raise ImportError(
        "this folder is installed as graphfix.passes; run 'pip install -e .' in the repository "
        "and import graphfix.passes, or name the pass: graphfix.get_pass('additive-mask')"
    )
