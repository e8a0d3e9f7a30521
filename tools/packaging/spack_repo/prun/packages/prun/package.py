# From a clone, which is the source:
#   spack repo add tools/packaging/spack_repo/prun
#   spack dev-build prun@0.3.0                           # for CPUs
#   spack dev-build prun@0.3.0 +cuda cuda_arch=80,90a    # and for these GPUs
from spack_repo.builtin.build_systems.cmake import CMakePackage
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *


class Prun(CMakePackage, CudaPackage):
    """A training runtime for language models that plans each step before it runs.
    Models, strategies, devices and all else are plugins."""

    license("Apache-2.0")

    version("0.3.0")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("tomlplusplus@3.3:", type="build")
    depends_on("nlohmann-json@3.11:", type="build")
    depends_on("boost@1.74: +filesystem +system")
    depends_on("ucx@1.13: +thread_multiple +cma")
    depends_on("numactl")
    depends_on("liburing")
    depends_on("zlib-api")
    depends_on("zstd")

    with when("+cuda"):
        depends_on("cuda@13:")
        depends_on("cudnn@9:")
        depends_on("nccl")

    conflicts("%gcc@:11", msg="prun is C++20, for GCC 12 and newer")

    generator("ninja")

    def cmake_args(self):
        args = [self.define("PRUN_TESTS", False), self.define("PRUN_CUDA", "ON" if "+cuda" in self.spec else "OFF")]
        if "+cuda" in self.spec:
            architectures = [f"{each}-real" for each in self.spec.variants["cuda_arch"].value if each != "none"]
            if architectures:
                args.append(self.define("PRUN_CUDA_ARCHITECTURES", ";".join(architectures)))
        return args
