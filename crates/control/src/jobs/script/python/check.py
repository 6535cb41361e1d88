import ast, json, platform, sys

def mistake(line, column, message, source):
    return {"line": line or 0, "column": column or 0, "message": message,
            "source": source or "", "python": platform.python_version()}

def script(tree):
    imports, servers = set(), False
    for node in ast.walk(tree):
        names = []
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
    return {"imports": sorted(imports)[:1000], "parameter_servers": servers}

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
