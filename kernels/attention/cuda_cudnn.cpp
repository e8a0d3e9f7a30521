#include "attention/cuda_cudnn.hpp"

#include <cuda_runtime_api.h>
#include <cudnn_frontend.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <map>

#include "attention/cuda_pieces.hpp"
#include "cuda/check.hpp"
#include "cuda/library.hpp"
#include "prun/error.hpp"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // is what its headers call cuDNN through: there is one library in a process
}

namespace prun::cuda {

namespace graph = cudnn_frontend::graph;
using TensorAttributes = graph::Tensor_attributes;

struct CudnnGraph {
  AttentionLayout layout;
  AttentionPieces pieces;
  bool backward;
  cudnnHandle_t handle;
  graph::Graph graph = {};
  std::int64_t workspace = 0;
};

struct CudnnAttention::Impl {
  explicit Impl(const std::string& folders);
  ~Impl() {
    for (const auto& [stream, handle] : handles_) cudnn_frontend::detail::destroy_handle(handle);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Library library, runtime;
  std::size_t version;  // such as 91900
  std::int32_t device = 0, capability;

  // Makes the handle when it is first wanted, by which the device gets a context. A handle that is given a
  // stream makes streams of its own of that priority, for which the driver waits for all that runs, and holds
  // up every thread that calls it meanwhile: so no handle gets another stream later.
  cudnnHandle_t handle(Stream stream);
  void forget(Stream stream) {
    if (const auto handle = handles_.extract(stream)) cudnn_frontend::detail::destroy_handle(handle.mapped());
  }

 private:
  std::map<Stream, cudnnHandle_t> handles_;
};

namespace {

constexpr std::size_t oldest = 90600;  // since it, backward needs no cleared workspace

// Numbers the operands of a graph, which takes pointers in this order.
enum Operand : std::int64_t { q_at = 1, k_at, v_at, y_at, lse_at, dy_at, dq_at, dk_at, dv_at };

// cuDNN explains an error over many lines; the first says what it is.
void accept(cudnn_frontend::error_t status, ErrorCode code = ErrorCode::unsupported) {
  if (status.is_good()) return;
  const std::string message = status.get_message();
  throw_error(code, "cuDNN refused attention: ", message.substr(0, message.find('\n')));
}

using cuda::check;
void check(cudnnStatus_t status, const char* what) {
  if (status != CUDNN_STATUS_SUCCESS)
    throw_error(ErrorCode::internal, "cuDNN refused ", what, ": ",
                cudnn_frontend::detail::get_error_string(status));
}

// Returns 90 for an H200.
std::int32_t capability_of(int device) {
  int major = 0, minor = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "cudaDeviceGetAttribute");
  return 10 * major + minor;
}

std::string text_of_version(std::size_t version) {
  return std::to_string(version / 10000) + '.' + std::to_string(version / 100 % 100) + '.' +
         std::to_string(version % 100);
}

// ---------------------------------------------------------------- graphs
// Gives a tensor of one piece its extents, [samples, heads, seq, channels] to cuDNN, and its strides.
class TensorStrides {
 public:
  TensorStrides(const AttentionLayout& layout, const AttentionPieces& pieces)
      : s_(layout.shape), pieces_(pieces) {}

  auto queries(const HeadStrides& at) const {
    return [this, at](TensorAttributes& tensor) {
      if (pieces_.by_group)
        set(tensor, pieces_.heads, s_.queries, s_.seq, {at.head, at.seq, s_.head_dim});
      else
        set(tensor, pieces_.samples, pieces_.heads * s_.queries, s_.seq,
            {at.batch, at.seq, query_stride(s_, at)});
    };
  }
  auto keys(const HeadStrides& at) const {
    return [this, at](TensorAttributes& tensor) {
      if (pieces_.by_group)
        set(tensor, pieces_.heads, 1, shape_of_keys(s_).seq, {at.head, at.seq, s_.head_dim});
      else
        set(tensor, pieces_.samples, pieces_.heads, shape_of_keys(s_).seq, at);
    };
  }
  // cuDNN takes statistics dense: a piece is of all heads, or of one sample.
  auto statistics() const {
    return [this](TensorAttributes& tensor) {
      const std::int64_t samples = pieces_.by_group ? pieces_.heads : pieces_.samples;
      const std::int64_t heads = pieces_.by_group ? s_.queries : pieces_.heads * s_.queries;
      tensor.set_data_type(cudnn_frontend::DataType_t::FLOAT)
          .set_dim({samples, heads, s_.seq, 1})
          .set_stride({heads * s_.seq, s_.seq, 1, 1});
    };
  }

 private:
  void set(TensorAttributes& tensor, std::int64_t samples, std::int64_t heads, std::int64_t rows,
           const HeadStrides& at) const {
    tensor.set_dim({samples, heads, rows, s_.head_dim}).set_stride({at.batch, at.head, at.seq, 1});
  }

  const AttentionShape& s_;
  const AttentionPieces& pieces_;
};

template <class Strides>
std::shared_ptr<TensorAttributes> input(graph::Graph& all, Operand operand, Strides strides) {
  TensorAttributes tensor;
  tensor.set_uid(operand);
  strides(tensor);
  return all.tensor(tensor);
}

template <class Strides>
void output(const std::shared_ptr<TensorAttributes>& tensor, Operand operand, Strides strides) {
  tensor->set_output(true).set_uid(operand);
  strides(*tensor);
}

// cuDNN sees keys for which key + bound > query.
template <class Attributes>
Attributes with_window(Attributes attributes, const AttentionShape& shape) {
  if (shape.window > 0 && shape.window < shape.seq)
    attributes.set_diagonal_band_left_bound(static_cast<int>(shape.window));
  return attributes;
}

float scale_of(const AttentionShape& shape) { return 1 / std::sqrt(static_cast<float>(shape.head_dim)); }

// Where there are more keys than queries, the last of both are at the same position.
template <class Attributes>
Attributes masked(Attributes attributes, const AttentionShape& shape) {
  if (shape.across())
    attributes.set_causal_mask_bottom_right(shape.causal);
  else
    attributes.set_causal_mask(shape.causal);
  return attributes;
}

void describe_forward(CudnnGraph& plan) {
  const AttentionLayout& at = plan.layout;
  const TensorStrides strides(at, plan.pieces);
  graph::Graph& all = plan.graph;
  const auto [y, lse] = all.sdpa(input(all, q_at, strides.queries(at.q)),
                                 input(all, k_at, strides.keys(at.k)), input(all, v_at, strides.keys(at.v)),
                                 with_window(masked(graph::SDPA_attributes(), at.shape)
                                                 .set_name("attention")
                                                 .set_generate_stats(true)
                                                 .set_attn_scale(scale_of(at.shape)),
                                             at.shape));
  output(y, y_at, strides.queries(at.y));
  output(lse, lse_at, strides.statistics());
}

void describe_backward(CudnnGraph& plan, bool deterministic) {
  const AttentionLayout& at = plan.layout;
  const TensorStrides strides(at, plan.pieces);
  graph::Graph& all = plan.graph;
  const auto [dq, dk, dv] =
      all.sdpa_backward(input(all, q_at, strides.queries(at.q)), input(all, k_at, strides.keys(at.k)),
                        input(all, v_at, strides.keys(at.v)), input(all, y_at, strides.queries(at.y)),
                        input(all, dy_at, strides.queries(at.y)), input(all, lse_at, strides.statistics()),
                        with_window(masked(graph::SDPA_backward_attributes(), at.shape)
                                        .set_name("attention_grad")
                                        .set_attn_scale(scale_of(at.shape))
                                        .set_deterministic_algorithm(deterministic),
                                    at.shape));
  output(dq, dq_at, strides.queries(at.q));
  output(dk, dk_at, strides.keys(at.k));
  output(dv, dv_at, strides.keys(at.v));
}

void set_types(graph::Graph& all, DType type, std::int32_t capability) {
  all.set_io_data_type(type == DType::f16 ? cudnn_frontend::DataType_t::HALF
                                          : cudnn_frontend::DataType_t::BFLOAT16)
      .set_intermediate_data_type(cudnn_frontend::DataType_t::FLOAT)
      .set_compute_data_type(cudnn_frontend::DataType_t::FLOAT)
      .set_sm_version(capability);
}

// Takes the algorithm that the heuristic names first, of those that stay within `most_bytes`.
void choose(CudnnGraph& plan, std::int64_t most_bytes) {
  graph::Graph& all = plan.graph;
  accept(all.validate());
  accept(all.build_operation_graph(plan.handle));
  accept(all.create_execution_plans({cudnn_frontend::HeurMode_t::A}));
  all.deselect_workspace_greater_than(most_bytes);
  accept(all.check_support());
  accept(all.build_plans(plan.handle));
  accept(all.get_workspace_size(plan.workspace));
  if (plan.workspace > most_bytes)
    throw_error(ErrorCode::unsupported, "cuDNN's attention needs ", plan.workspace,
                " bytes of workspace where ", most_bytes, " were planned; use prun's own kernels for it");
  accept(all.warmup(plan.handle));  // loads its kernels, none of which may be loaded while others run
}

// ---------------------------------------------------------------- runs
// Calls run(sample, head) for each piece, with the place where it begins.
template <class Run>
void for_pieces(const CudnnGraph& plan, Run run) {
  const AttentionShape& s = plan.layout.shape;
  for (std::int64_t sample = 0; sample < s.batch; sample += plan.pieces.samples)
    for (std::int64_t head = 0; head < s.heads; head += plan.pieces.heads) run(sample, head);
}

template <class T>
void* piece_of(const Heads<T>& heads, std::int64_t sample, std::int64_t head) {
  const HeadStrides& at = heads.strides;
  return const_cast<std::remove_const_t<T>*>(heads.data + sample * at.batch + head * at.head);
}

void* piece_of(const float* lse, const AttentionShape& s, std::int64_t sample, std::int64_t head) {
  return const_cast<float*>(lse + (sample * s.heads + head) * s.queries * s.seq);
}

template <std::size_t n>
void execute(const CudnnGraph& plan, std::array<void*, n> operands, void* workspace) {
  accept(plan.graph.execute(plan.handle, operands.data(), n, workspace), ErrorCode::internal);
}

}  // namespace

// ---------------------------------------------------------------- the interface
std::string cudnn_absence() { return {}; }

CudnnPlan::CudnnPlan(std::unique_ptr<CudnnGraph> graph) : graph_(std::move(graph)) {}
CudnnPlan::CudnnPlan(CudnnPlan&&) noexcept = default;
CudnnPlan& CudnnPlan::operator=(CudnnPlan&&) noexcept = default;
CudnnPlan::~CudnnPlan() = default;

std::int64_t CudnnPlan::workspace() const { return graph_->workspace; }

std::string CudnnPlan::algorithm() const {
  std::string name;
  accept(graph_->graph.get_plan_name(name));
  return name;
}

// The headers look for the driver with the runtime library: by its name, which a library that is loaded
// answers to.
CudnnAttention::Impl::Impl(const std::string& folders)
    : library({"cuDNN", {"libcudnn.so.9"}, "install cuDNN 9 (PyPI: nvidia-cudnn-cu13)"}, folders),
      runtime({"CUDA's runtime library",
               {"libcudart.so.13", "libcudart.so.12"},
               "install CUDA 13 (PyPI: nvidia-cuda-runtime)"},
              folders) {
  cudnn_frontend::cudnn_dlhandle = library.handle();
  version = cudnn_frontend::detail::get_backend_version();
  if (version < oldest)
    throw_error(ErrorCode::unsupported, "cuDNN at ", library.path(), " is ", text_of_version(version),
                ": install ", text_of_version(oldest), " or newer");
  check(cudaGetDevice(&device), "cudaGetDevice");
  capability = capability_of(device);
}

cudnnHandle_t CudnnAttention::Impl::handle(Stream stream) {
  if (const auto known = handles_.find(stream); known != handles_.end()) return known->second;
  cudnnHandle_t handle = nullptr;
  check(cudnn_frontend::detail::create_handle(&handle), "a handle");
  handles_[stream] = handle;
  check(cudnn_frontend::detail::set_stream(handle, stream), "a stream");
  return handle;
}

CudnnAttention::CudnnAttention(const std::string& folders) : impl_(std::make_unique<Impl>(folders)) {}
CudnnAttention::~CudnnAttention() = default;

void CudnnAttention::forget(Stream stream) const { impl_->forget(stream); }

std::string CudnnAttention::version() const { return "cuDNN " + text_of_version(impl_->version); }
const std::string& CudnnAttention::path() const { return impl_->library.path(); }

CudnnPlan CudnnAttention::prepare(const AttentionLayout& layout, Stream stream) const {
  auto plan =
      std::make_unique<CudnnGraph>(CudnnGraph{layout, cudnn_pieces(layout), false, impl_->handle(stream)});
  set_types(plan->graph, layout.type, impl_->capability);
  describe_forward(*plan);
  choose(*plan, cudnn_workspace(layout));
  return CudnnPlan(std::move(plan));
}

CudnnPlan CudnnAttention::prepare_backward(const AttentionLayout& layout, bool deterministic,
                                           Stream stream) const {
  auto plan = std::make_unique<CudnnGraph>(
      CudnnGraph{layout, cudnn_backward_pieces(layout, deterministic), true, impl_->handle(stream)});
  set_types(plan->graph, layout.type, impl_->capability);
  describe_backward(*plan, deterministic);
  choose(*plan, cudnn_backward_workspace(layout, deterministic));
  return CudnnPlan(std::move(plan));
}

template <class T>
void CudnnAttention::run(const CudnnPlan& plan, const AttentionForward<T>& call) const {
  const CudnnGraph& p = *plan.graph_;
  const AttentionLayout layout = {call.shape,     call.q.strides, call.k.strides,
                                  call.v.strides, call.y.strides, dtype_of<T>()};
  PRUN_CHECK(!p.backward && p.layout == layout, "cuDNN's attention was prepared for another call");
  for_pieces(p, [&](std::int64_t b, std::int64_t h) {
    const std::array operands = {piece_of(call.q, b, h), piece_of(call.k, b, h), piece_of(call.v, b, h),
                                 piece_of(call.y, b, h), piece_of(call.lse, call.shape, b, h)};
    execute(p, operands, call.workspace);
  });
}

template <class T>
void CudnnAttention::run(const CudnnPlan& plan, const AttentionBackward<T>& call) const {
  const CudnnGraph& p = *plan.graph_;
  const AttentionLayout layout = {call.shape,     call.q.strides, call.k.strides,
                                  call.v.strides, call.y.strides, dtype_of<T>()};
  PRUN_CHECK(p.backward && p.layout == layout && call.dy.strides == layout.y && call.dq.strides == layout.q &&
                 call.dk.strides == layout.k && call.dv.strides == layout.v,
             "cuDNN's attention was prepared for another call");
  for_pieces(p, [&](std::int64_t b, std::int64_t h) {
    const std::array operands = {piece_of(call.q, b, h),
                                 piece_of(call.k, b, h),
                                 piece_of(call.v, b, h),
                                 piece_of(call.y, b, h),
                                 piece_of(call.lse, call.shape, b, h),
                                 piece_of(call.dy, b, h),
                                 piece_of(call.dq, b, h),
                                 piece_of(call.dk, b, h),
                                 piece_of(call.dv, b, h)};
    execute(p, operands, call.workspace);
  });
}

template void CudnnAttention::run(const CudnnPlan&, const AttentionForward<bf16>&) const;
template void CudnnAttention::run(const CudnnPlan&, const AttentionForward<f16>&) const;
template void CudnnAttention::run(const CudnnPlan&, const AttentionBackward<bf16>&) const;
template void CudnnAttention::run(const CudnnPlan&, const AttentionBackward<f16>&) const;

}  // namespace prun::cuda
