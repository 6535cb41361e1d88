import ast, json, platform, sys

def mistake(line, column, message, source):
    return {"line": line or 0, "column": column or 0, "message": message,
            "source": source or "", "python": platform.python_version()}

def keras_backend(node):
    """The value that a statement gives to the variable KERAS_BACKEND, if it does."""
    def text(node):
        return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
    def is_it(node):
        return any(text(part) == "KERAS_BACKEND" for part in ast.walk(node))
    if isinstance(node, ast.Assign) and any(is_it(target) for target in node.targets):
        return text(node.value)
    if isinstance(node, ast.Call) and len(node.args) == 2 and text(node.args[0]) == "KERAS_BACKEND":
        return text(node.args[1])
    return None

def script(tree):
    imports, servers, texts, backend = set(), False, set(), None
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if 0 < len(node.value) <= 200 and node.value.isprintable():
                texts.add(node.value)
        backend = backend or keras_backend(node)
        if isinstance(node, ast.Import):
            imports.update(a.name.split(".")[0] for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.module and not node.level:
                imports.add(node.module.split(".")[0])
            names = [a.name for a in node.names]
        elif isinstance(node, ast.Attribute):
            names = [node.attr]
        elif isinstance(node, ast.Name):
            names = [node.id]
        servers = servers or any("ParameterServerStrategy" in n for n in names)
    return {"imports": sorted(imports)[:1000], "parameter_servers": servers,
            "texts": sorted(texts)[:2000], "keras_backend": backend}

def check(source):
    try:
        tree = ast.parse(source, "script")
        # Some mistakes are found only here, such as `return` outside of a function.
        compile(source, "script", "exec", dont_inherit=True)
    except SyntaxError as e:
        lines = source.decode("utf-8", "replace").split("\n")
        known = lines[e.lineno - 1] if e.lineno and e.lineno <= len(lines) else ""
        return mistake(e.lineno, e.offset, e.msg, e.text or known)
    except RecursionError:
        return mistake(0, 0, "it is nested too deeply", "")
    except (ValueError, MemoryError) as e:
        return mistake(0, 0, str(e) or "it is too large", "")
    return script(tree)

sys.stdout.write(json.dumps(check(sys.stdin.buffer.read())))
