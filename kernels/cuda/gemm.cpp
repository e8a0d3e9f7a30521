#include "cuda/gemm.hpp"

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdio>
#include <functional>
#include <span>
#include <sstream>
#include <vector>

#include "bias/cuda.hpp"
#include "cuda/library.hpp"
#include "cuda/stopwatch.hpp"

namespace prun::cuda {
namespace {

// Loads the functions that are used here.
struct CublasLt {
  explicit CublasLt(const std::string& folders)
      : library({"cuBLASLt",
                 {"libcublasLt.so.13", "libcublasLt.so.12"},
                 "install cuBLAS of CUDA 13 (from NVIDIA's packages, or the Python package nvidia-cublas)"},
                folders) {
    library.find("cublasLtGetVersion", get_version);
    library.find("cublasLtGetStatusString", status_string);
    library.find("cublasLtCreate", create);
    library.find("cublasLtDestroy", destroy);
    library.find("cublasLtMatmulDescCreate", operation_create);
    library.find("cublasLtMatmulDescDestroy", operation_destroy);
    library.find("cublasLtMatmulDescSetAttribute", operation_set);
    library.find("cublasLtMatrixLayoutCreate", layout_create);
    library.find("cublasLtMatrixLayoutDestroy", layout_destroy);
    library.find("cublasLtMatrixLayoutSetAttribute", layout_set);
    library.find("cublasLtMatmulPreferenceCreate", preference_create);
    library.find("cublasLtMatmulPreferenceDestroy", preference_destroy);
    library.find("cublasLtMatmulPreferenceSetAttribute", preference_set);
    library.find("cublasLtMatmulAlgoGetHeuristic", heuristic);
    library.find("cublasLtMatmulAlgoCheck", algorithm_check);
    library.find("cublasLtMatmulAlgoCapGetAttribute", algorithm_ability);
    library.find("cublasLtMatmul", matmul);
  }

  Library library;
  decltype(cublasLtGetVersion)* get_version;
  decltype(cublasLtGetStatusString)* status_string;
  decltype(cublasLtCreate)* create;
  decltype(cublasLtDestroy)* destroy;
  decltype(cublasLtMatmulDescCreate)* operation_create;
  decltype(cublasLtMatmulDescDestroy)* operation_destroy;
  decltype(cublasLtMatmulDescSetAttribute)* operation_set;
  decltype(cublasLtMatrixLayoutCreate)* layout_create;
  decltype(cublasLtMatrixLayoutDestroy)* layout_destroy;
  decltype(cublasLtMatrixLayoutSetAttribute)* layout_set;
  decltype(cublasLtMatmulPreferenceCreate)* preference_create;
  decltype(cublasLtMatmulPreferenceDestroy)* preference_destroy;
  decltype(cublasLtMatmulPreferenceSetAttribute)* preference_set;
  decltype(cublasLtMatmulAlgoGetHeuristic)* heuristic;
  decltype(cublasLtMatmulAlgoCheck)* algorithm_check;
  decltype(cublasLtMatmulAlgoCapGetAttribute)* algorithm_ability;
  decltype(cublasLtMatmul)* matmul;
};

// Owns one of cuBLASLt's objects, with the function that destroys it.
template <class Object>
using Owned = std::unique_ptr<std::remove_pointer_t<Object>, cublasStatus_t (*)(Object)>;

cudaDataType_t data_type(DType type) {
  switch (type) {
    case DType::f64: return CUDA_R_64F;
    case DType::f32: return CUDA_R_32F;
    case DType::bf16: return CUDA_R_16BF;
    case DType::f16: return CUDA_R_16F;
    default: throw_error(ErrorCode::internal, "no matrix product of ", name_of(type));
  }
}

std::int64_t stride_or(std::int64_t stride, std::int64_t dense) { return stride ? stride : dense; }

// Describes row-major rows of `columns` each, as Product does.
struct Layout {
  cudaDataType_t type;
  std::int64_t rows, columns, stride, batch;
};

cudaDataType_t input_type(const Product& p) { return p.fp8 ? CUDA_R_8F_E4M3 : data_type(p.input); }

Layout layout_a(const Product& p) {
  const std::int64_t columns = p.transpose_a ? p.m : p.k;
  return {input_type(p), p.transpose_a ? p.k : p.m, columns, stride_or(p.a_stride, columns), p.batch};
}
Layout layout_b(const Product& p) {
  const std::int64_t columns = p.transpose_b ? p.k : p.n;
  return {input_type(p), p.transpose_b ? p.n : p.k, columns, stride_or(p.b_stride, columns), p.batch};
}
Layout layout_d(const Product& p) {
  return {data_type(p.output), p.m, p.n, stride_or(p.d_stride, p.n), p.batch};
}

bool has_bias(const Product& p) { return p.epilogue == Epilogue::bias || p.epilogue == Epilogue::bias_gelu; }
bool has_aux(const Product& p) { return p.epilogue != Epilogue::none && p.epilogue != Epilogue::bias; }

std::int64_t output_alignment(const Product& p) {
  return std::max<std::int64_t>(p.alignment, size_of(p.output));
}

cublasLtEpilogue_t epilogue_of(const Product& p) {
  switch (p.epilogue) {
    case Epilogue::none: return CUBLASLT_EPILOGUE_DEFAULT;
    case Epilogue::bias: return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::bias_gelu: return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case Epilogue::gelu_grad: return CUBLASLT_EPILOGUE_DGELU;
    case Epilogue::bias_grad: return CUBLASLT_EPILOGUE_BGRADB;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

const char* text_of(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::none: return "";
    case Epilogue::bias: return ", bias";
    case Epilogue::bias_gelu: return ", bias and gelu";
    case Epilogue::gelu_grad: return ", gelu's gradient";
    case Epilogue::bias_grad: return ", gradient of a bias";
  }
  return "";
}

void check_fp8(const Product& p) {
  PRUN_CHECK(!p.transpose_a && p.transpose_b && p.batch == 1 && !p.a_stride && !p.b_stride, text_of(p));
  PRUN_CHECK(p.output != DType::f64 && !has_aux(p), text_of(p));
}

void check_product(const Product& p) {
  if (p.fp8) check_fp8(p);
  const bool types = p.output == p.input || (size_of(p.input) == 2 && p.output == DType::f32);
  PRUN_CHECK(types && p.m > 0 && p.n > 0 && p.k > 0, text_of(p));
  for (const Layout& layout : {layout_a(p), layout_b(p), layout_d(p)})
    PRUN_CHECK(layout.stride >= layout.columns && (p.batch == 1 || layout.stride == layout.columns),
               text_of(p));
  PRUN_CHECK(p.batch == 1 || (p.batch > 1 && p.epilogue == Epilogue::none), text_of(p));
  PRUN_CHECK(std::has_single_bit(static_cast<std::uint32_t>(p.alignment)) && p.alignment >= size_of(p.input),
             text_of(p));
}

}  // namespace

std::string text_of(const Product& p) {
  std::ostringstream text;
  const char* const input = p.fp8 ? "fp8 in blocks" : name_of(p.input);
  text << input << " x " << input << " -> " << name_of(p.output) << ", m " << p.m << ", n " << p.n << ", k "
       << p.k;
  if (p.transpose_a) text << ", a transposed";
  if (p.transpose_b) text << ", b transposed";
  text << text_of(p.epilogue);
  if (p.a_stride) text << ", a's rows " << p.a_stride << " apart";
  if (p.b_stride) text << ", b's rows " << p.b_stride << " apart";
  if (p.d_stride) text << ", d's rows " << p.d_stride << " apart";
  if (p.batch != 1) text << ", " << p.batch << " of them";
  if (p.alignment != Product().alignment) text << ", aligned to " << p.alignment;
  return text.str();
}

std::int32_t alignment_of(std::initializer_list<const void*> pointers) {
  std::uintptr_t bits = 256;
  for (const void* p : pointers) bits |= reinterpret_cast<std::uintptr_t>(p);
  return static_cast<std::int32_t>(bits & (~bits + 1));
}

struct GemmPlan::State {
  Product product;
  Owned<cublasLtMatmulDesc_t> operation;
  Owned<cublasLtMatrixLayout_t> a, b, d;  // those of our operands
  cublasLtMatmulAlgo_t algorithm;
  bool bias_in_front;  // says that the library cannot add it: it is written to d before
};

GemmPlan::GemmPlan(std::unique_ptr<State> state) : state_(std::move(state)) {}
GemmPlan::GemmPlan(GemmPlan&&) noexcept = default;
GemmPlan& GemmPlan::operator=(GemmPlan&&) noexcept = default;
GemmPlan::~GemmPlan() = default;

const Product& GemmPlan::product() const { return state_->product; }

std::string GemmPlan::algorithm() const {
  std::string word;
  for (const std::uint64_t part : state_->algorithm.data) {
    char digits[17];
    std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(part));
    word += digits;
  }
  return word;
}

struct Gemm::Impl {
  using State = GemmPlan::State;

  CublasLt lt;
  std::string device;

  explicit Impl(const std::string& folders) : lt(folders) {
    cudaDeviceProp properties;
    int current = 0;
    cudaError_t status = cudaGetDevice(&current);
    if (status == cudaSuccess) status = cudaGetDeviceProperties(&properties, current);
    if (status != cudaSuccess)
      throw_error(ErrorCode::unsupported, "no GPU to multiply matrices on: ", cudaGetErrorString(status));
    device = properties.name;
  }

  // Makes the handle when it is first wanted, by which the device gets a context: the library tells its
  // version without one.
  cublasLtHandle_t handle() const {
    if (!handle_) {
      cublasLtHandle_t made = nullptr;
      require(lt.create(&made), "a handle");
      handle_ = {made, lt.destroy};
    }
    return handle_.get();
  }

  void require(cublasStatus_t status, const std::string& what) const {
    if (status != CUBLAS_STATUS_SUCCESS)
      throw_error(ErrorCode::internal, "cuBLASLt refused ", what, ": ", lt.status_string(status));
  }

  Owned<cublasLtMatrixLayout_t> layout(const Layout& rows) const {
    cublasLtMatrixLayout_t made = nullptr;
    require(lt.layout_create(&made, rows.type, static_cast<std::uint64_t>(rows.columns),
                             static_cast<std::uint64_t>(rows.rows), rows.stride),
            "a matrix layout");
    Owned<cublasLtMatrixLayout_t> owned(made, lt.layout_destroy);
    if (rows.batch > 1) {
      const auto count = static_cast<std::int32_t>(rows.batch);
      const std::int64_t apart = rows.rows * rows.columns;
      require(lt.layout_set(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count), "a batch");
      require(lt.layout_set(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &apart, sizeof apart),
              "a batch");
    }
    return owned;
  }

  template <class Value>
  void set(const State& state, cublasLtMatmulDescAttributes_t attribute, const Value& value) const {
    require(lt.operation_set(state.operation.get(), attribute, &value, sizeof value), "an attribute");
  }

  // Says where the epilogue finds what it reads and writes beside the matrices.
  void set_addresses(const State& s, std::uintptr_t bias, std::uintptr_t aux) const {
    switch (s.product.epilogue) {
      case Epilogue::none: return;
      case Epilogue::bias: return set(s, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
      case Epilogue::bias_grad: return set(s, CUBLASLT_MATMUL_DESC_BIAS_POINTER, aux);
      case Epilogue::bias_gelu: set(s, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias); [[fallthrough]];
      case Epilogue::gelu_grad: return set(s, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
    }
  }

  void set_scales(const State& s, std::uintptr_t a, std::uintptr_t b) const {
    set(s, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, b);
    set(s, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, a);
  }

  void describe_scales(const State& s) const {
    set(s, CUBLASLT_MATMUL_DESC_A_SCALE_MODE,
        static_cast<std::int32_t>(CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F));
    set(s, CUBLASLT_MATMUL_DESC_B_SCALE_MODE,
        static_cast<std::int32_t>(CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F));
    set_scales(s, 256, 256);
  }

  std::unique_ptr<State> describe(const Product& p) const {
    const bool wide = p.input == DType::f64;
    cublasLtMatmulDesc_t made = nullptr;
    require(lt.operation_create(&made, wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                wide ? CUDA_R_64F : CUDA_R_32F),
            "a description");
    auto state = std::make_unique<State>(State{p,
                                               {made, lt.operation_destroy},
                                               layout(layout_a(p)),
                                               layout(layout_b(p)),
                                               layout(layout_d(p)),
                                               {},
                                               false});
    const auto transposed = [](bool yes) { return yes ? CUBLAS_OP_T : CUBLAS_OP_N; };
    set(*state, CUBLASLT_MATMUL_DESC_TRANSA, transposed(p.transpose_b));
    set(*state, CUBLASLT_MATMUL_DESC_TRANSB, transposed(p.transpose_a));
    set(*state, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(p));
    if (p.epilogue == Epilogue::bias_gelu || p.epilogue == Epilogue::gelu_grad)
      set(*state, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.n);
    // Before there are addresses the heuristic takes their alignment from the numbers that stand there.
    const auto any = static_cast<std::uintptr_t>(output_alignment(p));
    set_addresses(*state, any, any);
    if (p.fp8) describe_scales(*state);
    return state;
  }

  Owned<cublasLtMatmulPreference_t> preference(const Product& p) const {
    cublasLtMatmulPreference_t made = nullptr;
    require(lt.preference_create(&made), "a preference");
    Owned<cublasLtMatmulPreference_t> preference(made, lt.preference_destroy);
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      require(lt.preference_set(made, attribute, &value, sizeof value), "a preference");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(gemm_workspace));
    prefer(
        CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    const auto in = static_cast<std::uint32_t>(p.alignment);
    const auto out = static_cast<std::uint32_t>(output_alignment(p));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, in);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, in);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, out);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, out);
    return preference;
  }

  // Says whether it multiplies the numbers themselves, not their roundings to TF32, bf16 or integers.
  bool keeps_inputs(const cublasLtMatmulAlgo_t& algorithm, const Product& p) const {
    if (p.fp8 || size_of(p.input) == 2) return true;
    constexpr std::uint64_t narrow =
        CUBLASLT_NUMERICAL_IMPL_FLAGS_OP_INPUT_TYPE_MASK &
        ~(CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_64F | CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_32F);
    std::uint64_t flags = 0;
    std::size_t written = 0;
    require(lt.algorithm_ability(&algorithm, CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS, &flags, sizeof flags,
                                 &written),
            "to say how it multiplies");
    return (flags & narrow) == 0;
  }

  // Returns algorithms, the library's favourite first.
  std::vector<cublasLtMatmulAlgo_t> algorithms(const State& s, int most) const {
    std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(most));
    int count = 0;
    const cublasStatus_t status =
        lt.heuristic(handle(), s.operation.get(), s.b.get(), s.a.get(), s.d.get(), s.d.get(),
                     preference(s.product).get(), most, results.data(), &count);
    // The library may also call types or strides invalid that do not go with an epilogue.
    if (status == CUBLAS_STATUS_NOT_SUPPORTED ||
        (status == CUBLAS_STATUS_INVALID_VALUE && (s.product.epilogue != Epilogue::none || s.product.fp8)))
      return {};
    require(status, text_of(s.product));
    std::vector<cublasLtMatmulAlgo_t> found;
    for (const auto& result : std::span(results).first(static_cast<std::size_t>(count)))
      if (result.state == CUBLAS_STATUS_SUCCESS && keeps_inputs(result.algo, s.product))
        found.push_back(result.algo);
    return found;
  }

  cublasStatus_t multiply(const State& s, const cublasLtMatmulAlgo_t& algorithm, const GemmOperands& o,
                          Stream stream) const {
    static constexpr double one = 1, zero = 0;
    static constexpr float one_float = 1, zero_float = 0;
    const bool wide = s.product.input == DType::f64;
    const auto number = [&](bool yes) -> const void* {
      return wide ? static_cast<const void*>(yes ? &one : &zero) : yes ? &one_float : &zero_float;
    };
    const void* c = s.bias_in_front ? o.d : o.c;
    return lt.matmul(handle(), s.operation.get(), number(true), o.b, s.b.get(), o.a, s.a.get(),
                     number(c != nullptr), c ? c : o.d, s.d.get(), o.d, s.d.get(), &algorithm, o.workspace,
                     static_cast<std::size_t>(gemm_workspace), stream);
  }

  // Does what must come before the multiplication.
  void begin(const State& s, const GemmOperands& o, Stream stream) const {
    if (s.product.fp8)
      set_scales(s, reinterpret_cast<std::uintptr_t>(o.a_scales),
                 reinterpret_cast<std::uintptr_t>(o.b_scales));
    if (!s.bias_in_front)
      return set_addresses(s, reinterpret_cast<std::uintptr_t>(o.bias),
                           reinterpret_cast<std::uintptr_t>(o.aux));
    const auto put = [&]<class T>(T) {
      add_bias(static_cast<const T*>(o.c), static_cast<const T*>(o.bias), static_cast<T*>(o.d), s.product.m,
               s.product.n, s.product.d_stride ? s.product.d_stride : s.product.n, stream);
    };
    switch (s.product.output) {
      case DType::f64: return put(double{});
      case DType::f32: return put(float{});
      case DType::f16: return put(f16{});
      default: return put(bf16{});
    }
  }

  void check_operands(const Product& p, const GemmOperands& o) const {
    PRUN_CHECK(alignment_of({o.a, o.b, o.c, o.bias, o.d, o.aux}) >= p.alignment, text_of(p));
    PRUN_CHECK(o.a && o.b && o.d, text_of(p));
    PRUN_CHECK((o.bias != nullptr) == has_bias(p) && (o.aux != nullptr) == has_aux(p), text_of(p));
    PRUN_CHECK((o.a_scales != nullptr) == p.fp8 && (o.b_scales != nullptr) == p.fp8, text_of(p));
  }

 private:
  mutable Owned<cublasLtHandle_t> handle_{nullptr, nullptr};
};

Gemm::Gemm(const std::string& folders) : impl_(std::make_unique<Impl>(folders)) {}
Gemm::~Gemm() = default;

std::string Gemm::version() const {
  const std::size_t number = impl_->lt.get_version();
  return "cuBLASLt " + std::to_string(number / 10000) + '.' + std::to_string(number / 100 % 100) + '.' +
         std::to_string(number % 100);
}

const std::string& Gemm::path() const { return impl_->lt.library.path(); }

std::string Gemm::identity() const { return impl_->device + ", " + version(); }

GemmPlan Gemm::prepare(const Product& product) const {
  check_product(product);
  std::unique_ptr<GemmPlan::State> state = impl_->describe(product);
  constexpr int most = 8;
  // With fp8 the library takes a bias for one of 16-bit types, whatever the result is.
  const bool other_bias = product.fp8 && product.output == DType::f32;
  std::vector<cublasLtMatmulAlgo_t> found;
  if (product.epilogue != Epilogue::bias || !other_bias) found = impl_->algorithms(*state, most);
  if (found.empty() && product.epilogue == Epilogue::bias && !product.d_stride) {
    Product alone = product;
    alone.epilogue = Epilogue::none;
    state = impl_->describe(alone);
    found = impl_->algorithms(*state, most);
    state->product = product;
    state->bias_in_front = true;
  }
  if (found.empty())
    throw_error(ErrorCode::unsupported, identity(), " has no algorithm for ", text_of(product));
  state->algorithm = found.front();
  return GemmPlan(std::move(state));
}

void Gemm::run(const GemmPlan& plan, const GemmOperands& operands, Stream stream) const {
  const GemmPlan::State& state = *plan.state_;
  impl_->check_operands(state.product, operands);
  impl_->begin(state, operands, stream);
  const cublasStatus_t status = impl_->multiply(state, state.algorithm, operands, stream);
  if (status != CUBLAS_STATUS_SUCCESS) impl_->require(status, text_of(state.product));
}

Tuning Gemm::tune(GemmPlan& plan, const GemmOperands& operands, Stream stream, int candidates) const {
  GemmPlan::State& state = *plan.state_;
  impl_->check_operands(state.product, operands);
  impl_->begin(state, operands, stream);
  struct Timed {
    cublasLtMatmulAlgo_t algorithm;
    double seconds;
  };
  const Stopwatch clock(stream);
  const auto seconds = [&](const cublasLtMatmulAlgo_t& algorithm, int count) {
    return clock([&] { impl_->multiply(state, algorithm, operands, stream); }, count);
  };
  std::vector<Timed> timed;
  for (const cublasLtMatmulAlgo_t& algorithm : impl_->algorithms(state, candidates))
    if (impl_->multiply(state, algorithm, operands, stream) == CUBLAS_STATUS_SUCCESS)
      timed.push_back({algorithm, seconds(algorithm, 1)});
  PRUN_CHECK(!timed.empty(), "no algorithm ran for ", text_of(state.product));

  // The first algorithm, and the few fastest, are timed again and alternately: clocks change while they run.
  const auto faster = [](const Timed& x, const Timed& y) { return x.seconds < y.seconds; };
  std::sort(timed.begin() + 1, timed.end(), faster);
  const int tried = static_cast<int>(timed.size());
  timed.resize(std::min<std::size_t>(timed.size(), 6));
  const int count = std::clamp(static_cast<int>(1e-3 / timed[0].seconds), 1, 50);
  for (Timed& t : timed) t.seconds = seconds(t.algorithm, count);
  for (int round = 0; round < 2; ++round)
    for (Timed& t : timed) t.seconds = std::min(t.seconds, seconds(t.algorithm, count));
  const Timed& best = *std::min_element(timed.begin(), timed.end(), faster);
  state.algorithm = best.algorithm;
  return {tried, timed[0].seconds, best.seconds};
}

bool Gemm::choose(GemmPlan& plan, const std::string& algorithm) const {
  GemmPlan::State& s = *plan.state_;
  cublasLtMatmulAlgo_t parsed;
  constexpr std::size_t digits = 16;
  if (algorithm.size() != digits * std::size(parsed.data)) return false;
  for (std::size_t i = 0; i < std::size(parsed.data); ++i) {
    const char *begin = algorithm.data() + i * digits, *end = begin + digits;
    if (std::from_chars(begin, end, parsed.data[i], 16).ptr != end) return false;
  }
  cublasLtMatmulHeuristicResult_t result;
  const cublasStatus_t status = impl_->lt.algorithm_check(impl_->handle(), s.operation.get(), s.b.get(),
                                                          s.a.get(), s.d.get(), s.d.get(), &parsed, &result);
  if (status != CUBLAS_STATUS_SUCCESS || result.workspaceSize > static_cast<std::size_t>(gemm_workspace) ||
      !impl_->keeps_inputs(parsed, s.product))
    return false;
  s.algorithm = parsed;
  return true;
}

}  // namespace prun::cuda
