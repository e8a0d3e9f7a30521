#include "gpu_facts.hpp"

#include <cuda_runtime_api.h>

#include <utility>

#include "cuda/check.hpp"
#include "sharers.hpp"

namespace prun::cuda {
namespace {

// Returns the dense bf16 peak, where it is known by the name of the GPU.
double peak_of(const std::string& gpu) {
  for (const auto& [name, peak] : {std::pair{"H200", 989e12},
                                   {"H100 PCIe", 756e12},
                                   {"H100", 989e12},
                                   {"B200", 2250e12},
                                   {"A100", 312e12}})
    if (gpu.find(name) != std::string::npos) return peak;
  return 0;
}

std::string why_none(cudaError_t status) {
  int driver = 0;
  if (status != cudaErrorInsufficientDriver || cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
    return "no GPU here";
  const auto text = [](int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  };
  return "the driver here is for CUDA " + text(driver) + ", too old for " + text(CUDART_VERSION) +
         "; install driver " + (CUDART_VERSION < 13000 ? "525" : "580") + " or newer";
}

std::string hex_of(const char (&bytes)[16]) {
  std::string text;
  for (const char byte : bytes)
    for (const int shift : {4, 0})
      text += "0123456789abcdef"[(static_cast<unsigned char>(byte) >> shift) & 15];
  return text;
}

// Returns the number of this rank's GPU. Where each rank sees one GPU, that is its own.
int choose_among(int count, const GpuSettings& is) {
  int ordinal = is.ordinal;
  if (!is.chosen && (is.shares || count == 1)) ordinal = is.local_rank % count;
  if (!is.chosen && !is.shares && count > 1 && is.local_ranks > count)
    throw_error(ErrorCode::bad_input, "rank ", is.local_rank, " of ", is.local_ranks,
                " on this host, where it sees ", count, " GPUs; start at most one rank a GPU");
  if (ordinal >= count)
    throw_error(ErrorCode::bad_input, "device.ordinal = ", ordinal, ": there are ", count,
                " GPUs here, counted from 0");
  return ordinal;
}

GpuFacts facts_of_none(cudaError_t status, const GpuSettings& is) {
  GpuFacts facts;
  facts.ordinal = is.ordinal;
  facts.name =
      "cuda: " + (is.planned_gpu.empty() ? why_none(status) : is.planned_gpu + ", which is not here");
  facts.absent = true;
  facts.memory_bytes = std::int64_t{1} << 50;  // the GPU does not say
  if (!is.shares) facts.units = is.planned_units;
  return facts;
}

GpuFacts facts_of_one(int count, const GpuSettings& is, const Libraries& libraries) {
  GpuFacts facts;
  facts.ordinal = choose_among(count, is);
  cudaDeviceProp gpu{};
  check(cudaGetDeviceProperties(&gpu, facts.ordinal), "properties");
  if (!is.shares) {
    facts.unit = "GPU " + hex_of(gpu.uuid.bytes);
    facts.units = count;
  }
  facts.sharers = is.shares ? sharers_of(is.local_ranks, count, is.chosen) : 1;
  facts.name = "cuda: " + name_of(gpu.name, facts.sharers) + ", " + libraries.versions();
  facts.arithmetic = std::string("gpu = \"") + gpu.name + "\"";
  facts.memory_bytes = static_cast<std::int64_t>(gpu.totalGlobalMem) / facts.sharers;
  return facts;
}

}  // namespace

GpuFacts facts_of_gpu(const GpuSettings& settings, const Libraries& libraries) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  GpuFacts facts = status != cudaSuccess || count == 0 ? facts_of_none(status, settings)
                                                       : facts_of_one(count, settings, libraries);
  if (settings.planned_bytes > 0) facts.memory_bytes = settings.planned_bytes / facts.sharers;
  const double peak = settings.peak_flops > 0 ? settings.peak_flops : peak_of(facts.name);
  facts.peak_flops = peak / facts.sharers;
  return facts;
}

}  // namespace prun::cuda
