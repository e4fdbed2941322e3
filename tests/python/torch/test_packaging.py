"""The distribution hookline_torch: error messages, lazy imports, and capsules between extension modules."""

import importlib.metadata
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import hookline
from hookline import _core, _torch_versions


def in_python(text: str) -> str:
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(text)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_incompatible_versions() -> None:
    incompatibility = _torch_versions.incompatibility
    assert incompatibility("2.13.0+cpu", "2.13.0+cpu") is None
    assert "pip install torch==2.13.0" in str(incompatibility(None, None))
    assert "2.14.0 is installed" in str(incompatibility("2.14.0", "2.14.0"))
    assert incompatibility("2.14.0", "2.14.0", allow_untested=True) is None
    assert "--no-build-isolation ./python/torch_extension" in str(incompatibility("2.13.0", None))
    reason = str(incompatibility("2.13.1", "2.13.0"))
    assert "built against PyTorch 2.13.0" in reason
    assert "2.13.1 is installed" in reason


@pytest.mark.parametrize("missing", ["torch", "hookline_torch._built_with"])
def test_a_missing_package_is_an_import_error_with_instructions(missing: str) -> None:
    text = f"""
    import importlib.metadata, sys
    sys.modules[{missing!r}] = None
    version = importlib.metadata.version
    def without(package):
        if package == {missing!r}: raise importlib.metadata.PackageNotFoundError(package)
        return version(package)
    importlib.metadata.version = without
    import hookline
    try:
        hookline.torch
    except ImportError as error:
        print(error)
    """
    assert "pip install" in in_python(text)


def test_the_entry_point_registers_the_backend_without_imports() -> None:
    (entry,) = (e for e in importlib.metadata.entry_points(group="torch.backends") if e.name == "hookline")
    assert entry.value == "hookline_torch_autoload:register"
    text = """
    import sys, torch
    import torch.distributed as dist
    assert "hookline" in dist.Backend.backend_list
    assert not [m for m in sys.modules if m == "hookline" or m == "hookline_torch" or m.startswith("hookline.")]
    import hookline_torch_autoload
    hookline_torch_autoload.register()
    dist.Backend.register_backend = None
    dist.Backend.backend_list.remove("hookline")
    hookline_torch_autoload.register()  # never raises, so that torch can be imported
    print("fine")
    """
    assert in_python(text) == "fine"


def test_capsules_preserve_object_identity() -> None:
    (group,) = hookline.make_thread_groups(1)
    again = _core.group_from_capsule(_core.group_to_capsule(group))
    x = np.ones(3)
    again.allreduce([x]).wait()
    assert again.sequence_number == group.sequence_number == 1

    class InPython(hookline.ProcessGroup):
        pass

    python_group = InPython(0, 1)
    assert _core.group_from_capsule(_core.group_to_capsule(python_group)) is python_group
    hook = hookline.make_hook("fp16", group)
    assert _core.hook_from_capsule(_core.hook_to_capsule(hook), group).name == hook.name
    assert _core.group_of_hook(hook) is group
    for read in (_core.group_from_capsule, _core.store_from_capsule):
        with pytest.raises(TypeError, match="a capsule of hookline"):
            read(_core.hook_to_capsule(hook))
