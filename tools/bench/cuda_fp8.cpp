// Times the matrix products of training steps in fp8 beside bf16, by cuBLASLt, as they run in a step: each
// for so long that the GPU is at its power limit. Forward and input gradient give bf16, the weight gradient
// adds to fp32. Fast accumulation leaves partial sums in the tensor cores; without, they are promoted to
// fp32. Blocks have a scale for each 128 neighbours along the sum, a weight's for each 128 x 128. On Hopper
// fp8 takes both factors with the summed dimension innermost alone, so bf16 has them so too.
//
//   build/bin/cuda_fp8 [PART OF A NAME [FILE FOR JSON]]
#include <cublasLt.h>
#include <cuda_fp8.h>

#include <array>
#include <memory>

#include "cuda/library.hpp"
#include "tools/bench/cuda_bench.hpp"

namespace {

using namespace prun;
using namespace prun::bench;

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw_error(ErrorCode::internal, "cuBLASLt: ", what, " gave status ", static_cast<int>(status));
}

struct CublasLt {
  CublasLt()
      : library({"cuBLASLt", {"libcublasLt.so.13", "libcublasLt.so.12"}, "install cuBLAS of CUDA 13"}, "") {
    library.find("cublasLtCreate", create);
    library.find("cublasLtGetVersion", version);
    library.find("cublasLtMatmulDescCreate", operation_create);
    library.find("cublasLtMatmulDescDestroy", operation_destroy);
    library.find("cublasLtMatmulDescSetAttribute", operation_set);
    library.find("cublasLtMatrixLayoutCreate", layout_create);
    library.find("cublasLtMatrixLayoutDestroy", layout_destroy);
    library.find("cublasLtMatmulPreferenceCreate", preference_create);
    library.find("cublasLtMatmulPreferenceDestroy", preference_destroy);
    library.find("cublasLtMatmulPreferenceSetAttribute", preference_set);
    library.find("cublasLtMatmulAlgoGetHeuristic", heuristic);
    library.find("cublasLtMatmul", matmul);
    check(create(&handle), "cublasLtCreate");
  }

  cuda::Library library;
  decltype(cublasLtCreate)* create = nullptr;
  decltype(cublasLtGetVersion)* version = nullptr;
  decltype(cublasLtMatmulDescCreate)* operation_create = nullptr;
  decltype(cublasLtMatmulDescDestroy)* operation_destroy = nullptr;
  decltype(cublasLtMatmulDescSetAttribute)* operation_set = nullptr;
  decltype(cublasLtMatrixLayoutCreate)* layout_create = nullptr;
  decltype(cublasLtMatrixLayoutDestroy)* layout_destroy = nullptr;
  decltype(cublasLtMatmulPreferenceCreate)* preference_create = nullptr;
  decltype(cublasLtMatmulPreferenceDestroy)* preference_destroy = nullptr;
  decltype(cublasLtMatmulPreferenceSetAttribute)* preference_set = nullptr;
  decltype(cublasLtMatmulAlgoGetHeuristic)* heuristic = nullptr;
  decltype(cublasLtMatmul)* matmul = nullptr;
  cublasLtHandle_t handle = nullptr;
};

// The product is D = A^T B of columns of k elements: m of A, n of B.
struct Shape {
  std::int64_t m, n, k;
  double flops() const { return 2.0 * static_cast<double>(m) * static_cast<double>(n * k); }
};
struct Types {
  cudaDataType a, b;
  bool sums = false;  // says that fp32 is added to, else bf16 is written
  bool fast = false;
  cublasLtMatmulMatrixScale_t a_scales = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F, b_scales = a_scales;
};

class Product {
 public:
  static constexpr std::size_t workspace_bytes = std::size_t{64} << 20;

  Product(const CublasLt& lt, const Shape& shape, const Types& types, const float* scale)
      : lt_(lt), out_(types.sums ? CUDA_R_32F : CUDA_R_16BF), beta_(types.sums ? 1.0F : 0.0F) {
    check(lt.operation_create(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "an operation");
    set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    if (types.a != CUDA_R_16BF) {
      set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scale);
      set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scale);
      set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, static_cast<std::int32_t>(types.a_scales));
      set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, static_cast<std::int32_t>(types.b_scales));
      set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<std::int8_t>(types.fast));
    }
    a_ = layout(types.a, shape.k, shape.m);
    b_ = layout(types.b, shape.k, shape.n);
    d_ = layout(out_, shape.m, shape.n);
  }
  ~Product() {
    for (cublasLtMatrixLayout_t one : {a_, b_, d_}) lt_.layout_destroy(one);
    lt_.operation_destroy(operation_);
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  // Chooses the quickest of the first candidates that the library names, and returns whether there is any.
  bool tune(const void* a, const void* b, void* d, void* workspace, const Timer& timer) {
    double best = 0;
    for (const cublasLtMatmulHeuristicResult_t& candidate : candidates()) {
      algorithm_ = candidate.algo;
      if (run(a, b, d, workspace) != CUBLAS_STATUS_SUCCESS) continue;
      const double seconds = timer([&] { run(a, b, d, workspace); });
      if (best > 0 && seconds >= best) continue;
      best = seconds;
      quickest_ = candidate.algo;
    }
    algorithm_ = quickest_;
    return best > 0;
  }

  cublasStatus_t run(const void* a, const void* b, void* d, void* workspace) const {
    constexpr float one = 1;
    return lt_.matmul(lt_.handle, operation_, &one, a, a_, b, b_, &beta_, d, d_, d, d_, &algorithm_,
                      workspace, workspace_bytes, nullptr);
  }

 private:
  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    check(lt_.operation_set(operation_, attribute, &value, sizeof value), "an attribute");
  }

  cublasLtMatrixLayout_t layout(cudaDataType type, std::int64_t rows, std::int64_t columns) const {
    cublasLtMatrixLayout_t made = nullptr;
    check(lt_.layout_create(&made, type, static_cast<std::uint64_t>(rows),
                            static_cast<std::uint64_t>(columns), rows),
          "a layout");
    return made;
  }

  std::vector<cublasLtMatmulHeuristicResult_t> candidates() const {
    constexpr int most = 8;
    cublasLtMatmulPreference_t preference = nullptr;
    check(lt_.preference_create(&preference), "a preference");
    check(lt_.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes,
                             sizeof workspace_bytes),
          "a workspace");
    std::vector<cublasLtMatmulHeuristicResult_t> found(most);
    int count = 0;
    const cublasStatus_t status =
        lt_.heuristic(lt_.handle, operation_, a_, b_, d_, d_, preference, most, found.data(), &count);
    lt_.preference_destroy(preference);
    found.resize(status == CUBLAS_STATUS_SUCCESS ? static_cast<std::size_t>(count) : 0);
    return found;
  }

  const CublasLt& lt_;
  const cudaDataType out_;
  const float beta_;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, d_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{}, quickest_{};
};

struct Layer {
  const char* name;
  std::int64_t rows, in, out;
};

constexpr std::array layers = {
    Layer{"Llama-3-8B qkv", 8192, 4096, 6144},       Layer{"Llama-3-8B out", 8192, 4096, 4096},
    Layer{"Llama-3-8B gate, up", 8192, 4096, 28672}, Layer{"Llama-3-8B down", 8192, 14336, 4096},
    Layer{"Qwen2.5-7B qkv", 8192, 3584, 4608},       Layer{"Qwen2.5-7B out", 8192, 3584, 3584},
    Layer{"Qwen2.5-7B gate, up", 8192, 3584, 37888}, Layer{"Qwen2.5-7B down", 8192, 18944, 3584},
    Layer{"Llama-1B gate, up", 16384, 2048, 16384},  Layer{"Llama-1B down", 16384, 8192, 2048},
    Layer{"GPT-2 124M qkv", 65536, 768, 2304},       Layer{"GPT-2 124M up", 65536, 768, 3072},
    Layer{"GPT-2 124M down", 65536, 3072, 768},
};

class Bench {
 public:
  Bench(std::string filter, Results& results)
      : filter_(std::move(filter)),
        results_(results),
        bf16_(std::int64_t{6} << 30),
        fp8_(std::int64_t{3} << 30) {
    results_.add({cell("cuBLASLt", std::to_string(lt_.version()))});
    scale_ = fp8_.take(std::vector<float>(std::size_t{8} << 20, 1.0F));
    fill_with_fp8();
  }

  void run() {
    for (const Layer& layer : layers) {
      if (std::string(layer.name).find(filter_) == std::string::npos) continue;
      product(layer, "forward", {layer.out, layer.rows, layer.in}, CUDA_R_8F_E4M3, false);
      product(layer, "input gradient", {layer.in, layer.rows, layer.out}, CUDA_R_8F_E5M2, false);
      product(layer, "weight gradient, added", {layer.in, layer.out, layer.rows}, CUDA_R_8F_E5M2, true);
    }
  }

 private:
  // Draws normal numbers whose largest of a few million come near the largest of e4m3, as scaled tensors have
  // them.
  void fill_with_fp8() {
    std::mt19937 generator(3);
    std::normal_distribution<float> normal(0, 80);
    std::vector<std::uint8_t> block(std::size_t{8} << 20);
    for (std::uint8_t& byte : block)
      byte = __nv_cvt_float_to_fp8(normal(generator), __NV_SATFINITE, __NV_E4M3);
    bytes_ = fp8_.take<std::uint8_t>(std::int64_t{2} << 30);
    for (std::int64_t at = 0; at < std::int64_t{2} << 30; at += static_cast<std::int64_t>(block.size()))
      prun::bench::check(cudaMemcpy(bytes_ + at, block.data(), block.size(), cudaMemcpyHostToDevice));
  }

  void product(const Layer& layer, const char* which, const Shape& shape, cudaDataType gradient, bool sums) {
    const double bf16 = rate(shape, {CUDA_R_16BF, CUDA_R_16BF, sums, false}),
                 slow = rate(shape, {CUDA_R_8F_E4M3, gradient, sums, false}),
                 fast = rate(shape, {CUDA_R_8F_E4M3, gradient, sums, true});
    constexpr auto rows = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F,
                   squares = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
    const double blocks =
        rate(shape, {CUDA_R_8F_E4M3, CUDA_R_8F_E4M3, sums, false, sums ? rows : squares, rows});
    results_.add({cell("product", layer.name), cell("which", which),
                  cell("m×n×k", by(shape.m, shape.n) + "×" + std::to_string(shape.k)),
                  cell("bf16, TFLOP/s", bf16 / 1e12, 0), cell("fp8", slow / 1e12, 0),
                  cell("fp8, fast accumulation", fast / 1e12, 0), cell("fp8 in blocks", blocks / 1e12, 0),
                  cell("fp8 / bf16", slow / bf16, 2), cell("fast / bf16", fast / bf16, 2),
                  cell("blocks / bf16", blocks / bf16, 2)});
  }

  // Returns the FLOP/s over the second half of a second and more; 0 where the library has no such product.
  double rate(const Shape& shape, const Types& types) {
    bf16_.reset();
    const bool narrow = types.a != CUDA_R_16BF;
    const void *a = bytes_, *b = bytes_ + (shape.k * shape.m + 4095) / 4096 * 4096;
    if (!narrow) {
      a = bf16_.take<prun::bf16>(shape.k * shape.m);
      b = bf16_.take<prun::bf16>(shape.k * shape.n);
    }
    void* d = types.sums ? static_cast<void*>(bf16_.take<float>(shape.m * shape.n))
                         : bf16_.take<prun::bf16>(shape.m * shape.n);
    void* workspace = bf16_.take<char>(Product::workspace_bytes);
    Product product(lt_, shape, types, scale_);
    if (!product.tune(a, b, d, workspace, timer_)) return 0;
    const auto once = [&] { check(product.run(a, b, d, workspace), "a product"); };
    const double seconds = timer_(once);
    const int count = static_cast<int>(0.5 / seconds) + 1;
    timer_.group(once, count);
    return shape.flops() / timer_.group(once, count);
  }

  const std::string filter_;
  Results& results_;
  CublasLt lt_;
  Pool bf16_, fp8_;
  std::uint8_t* bytes_ = nullptr;
  float* scale_ = nullptr;
  const Timer timer_;
};

}  // namespace

int main(int count, char** arguments) {
  return prun::bench::run("cuda_fp8", count, arguments,
                          [](const std::string& filter, Results& results) { Bench(filter, results).run(); });
}
