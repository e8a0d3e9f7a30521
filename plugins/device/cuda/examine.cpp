#include "examine.hpp"

#include <cuda_runtime_api.h>

#include <vector>

#include "host/numa.hpp"

namespace prun::cuda {
namespace {

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string driver_line() {
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess) return "";
  return "good|driver|for CUDA " + version_text(driver) + ", built for " + version_text(CUDART_VERSION) +
         "|\n";
}

std::string gpu_line(int ordinal) {
  cudaDeviceProp gpu{};
  char address[32] = {};
  if (cudaGetDeviceProperties(&gpu, ordinal) != cudaSuccess ||
      cudaDeviceGetPCIBusId(address, sizeof address, ordinal) != cudaSuccess)
    return "";
  const int node = host::numa_node_of(address);
  return "good|GPU " + std::to_string(ordinal) + "|" + gpu.name + ", " +
         std::to_string(gpu.totalGlobalMem >> 30) + " GiB, at " + address +
         (node < 0 ? "" : ", memory node " + std::to_string(node)) + "|\n";
}

bool reaches(int from, int to) {
  int can = 0;
  return cudaDeviceCanAccessPeer(&can, from, to) == cudaSuccess && can != 0;
}

// Names pairs of GPUs that copy through the host's memory; a switch or links between all GPUs leave none.
std::string peers_line(int count) {
  std::string apart;
  for (int a = 0; a < count; ++a)
    for (int b = a + 1; b < count; ++b)
      if (!reaches(a, b) || !reaches(b, a))
        apart += (apart.empty() ? "" : ", ") + std::to_string(a) + " and " + std::to_string(b);
  if (apart.empty()) return "good|peer access|all " + std::to_string(count) + " GPUs reach each other|\n";
  return "slow|peer access|not between GPUs " + apart +
         "|see nvidia-smi topo -m; a container needs all GPUs and --ipc=host, a virtual machine ACS off\n";
}

}  // namespace

std::string examine_gpus() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) return "";
  std::string lines = driver_line();
  for (int ordinal = 0; ordinal < count; ++ordinal) lines += gpu_line(ordinal);
  return count > 1 ? lines + peers_line(count) : lines;
}

}  // namespace prun::cuda
