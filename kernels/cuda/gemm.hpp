// Computes matrix products through cuBLASLt:
//
//   d [m, n] = a [m, k] * b [k, n] (+ c [m, n]), and what an epilogue makes of that
//
// A product is described once and prepared: what then runs allocates nothing and chooses nothing. Arithmetic
// is in double for fp64, otherwise in float; fp32 is never computed as TF32 or narrower; each element of d is
// rounded once, in bf16 perhaps also before c or a bias is added to it. An algorithm gives the same bits in
// every run: those that add parts of a sum in the order in which they get ready, or round the parts, are not
// used.
//
// Matrices are row-major. cuBLASLt's are column-major, in which the same bytes are the transposed matrix: it
// computes d^T = b^T * a^T, so its A is our b, its B is our a, its m is our n, and its bias, one number for
// each of its rows, is one for each of our columns. Whether an operand is transposed stays the same.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>

#include "cuda/launch.hpp"

namespace prun::cuda {

// Every product gets this many bytes of workspace, aligned to 256. Products that may run at the same time
// need one each.
inline constexpr std::int64_t gemm_workspace = std::int64_t{32} << 20;

enum class Epilogue : std::uint8_t {
  none,
  bias,       // d = sum + bias [n]. Where the library cannot, bias + c is rounded before the sum is added.
  bias_gelu,  // aux [m, n] = sum + bias [n], d = gelu of that in its tanh form
  gelu_grad,  // d = sum * gelu'(aux [m, n])
  bias_grad,  // d = sum, aux [m] = the sum of a over k: the gradient of a bias beside that of its weight
};

// Where `fp8` is set, a [m, k] and b [n, k] are codes in e4m3 as cuda/fp8_blocks.hpp makes them: a's blocks
// are rows, b's squares. Then only output, epilogues none and bias, and what is added are as in other
// products.
struct Product {
  std::int64_t m, n, k;
  bool transpose_a = false;    // says that a lies as [k, m]
  bool transpose_b = false;    // says that b lies as [n, k]
  DType input = DType::bf16;   // that of a and b
  DType output = DType::bf16;  // that of c, d, bias and aux: the input's, or fp32 for 16-bit types
  Epilogue epilogue = Epilogue::none;
  std::int64_t a_stride = 0, b_stride = 0, d_stride = 0;  // lead from row to row, in elements; 0: dense
  std::int64_t batch = 1;  // counts products of matrices, each dense and behind the one before; no epilogue
  std::int32_t alignment = 256;  // that of all operands, in bytes
  bool fp8 = false;
};

// Returns "bf16 x bf16 -> fp32, m 768, n 768, k 65536, a transposed": an algorithm depends on this and on
// Gemm::identity() alone.
std::string text_of(const Product& product);

// Returns what all of these are aligned to, for Product::alignment; a null pointer is not used at all.
std::int32_t alignment_of(std::initializer_list<const void*> pointers);

struct GemmOperands {
  const void* a;
  const void* b;
  const void* c;     // null: nothing is added, and d not read; d itself: the product is added to it
  const void* bias;  // null where the epilogue has none; so is aux
  void* d;
  void* workspace;
  void* aux = nullptr;
  const float *a_scales = nullptr, *b_scales = nullptr;  // those of fp8
};

// Is a product with its algorithm, to run on the device of the Gemm that made it, by one thread at a time.
class GemmPlan {
 public:
  GemmPlan(GemmPlan&&) noexcept;
  GemmPlan& operator=(GemmPlan&&) noexcept;
  ~GemmPlan();

  const Product& product() const;
  // Returns the algorithm as one word, for Gemm::choose of the same product, device and library.
  std::string algorithm() const;

 private:
  friend class Gemm;
  struct State;
  explicit GemmPlan(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// States what tuning found.
struct Tuning {
  int candidates;
  double first_seconds;  // that of the algorithm that the library's heuristic names first
  double best_seconds;
};

// Opens cuBLASLt on the device that is current when it is made. Throws where library or driver are missing.
class Gemm {
 public:
  // The library is looked for in these folders first; see Library.
  explicit Gemm(const std::string& folders = {});
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  // Returns a text such as "cuBLASLt 13.1.0".
  std::string version() const;
  // Returns where the library is.
  const std::string& path() const;
  // Returns a text such as "NVIDIA H200, cuBLASLt 13.1.0".
  std::string identity() const;

  // Prepares a product with the algorithm that the library's heuristic names first. It waits for nothing.
  // Throws (`unsupported`) where the library has none, as may be for the epilogues besides `bias`.
  GemmPlan prepare(const Product& product) const;

  void run(const GemmPlan& plan, const GemmOperands& operands, Stream stream) const;

  // Times up to `candidates` algorithms on these operands, whose results it leaves in d and the workspace,
  // and keeps the fastest. Waits for the stream.
  Tuning tune(GemmPlan& plan, const GemmOperands& operands, Stream stream, int candidates = 16) const;

  // Takes an algorithm that algorithm() named for the same product; returns false if the library cannot use
  // it.
  bool choose(GemmPlan& plan, const std::string& algorithm) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace prun::cuda
