// Launches attention and its gradient, for queries, keys and values apart or packed. In 16-bit types the op
// is bound: to cuDNN or our own kernels on tensor cores, whichever is faster, where they support the call.
#include "attention/cuda.hpp"

#include <algorithm>

#include "attention/cuda_at.hpp"
#include "attention/cuda_chunks.hpp"
#include "attention/cuda_sink.hpp"
#include "attention/cuda_tensor.hpp"
#include "attention/key_names.hpp"
#include "device_op.hpp"
#include "elementwise/cuda.hpp"
#include "libraries.hpp"
#include "memory/cuda.hpp"
#include "prun/ops/attention.hpp"

namespace prun::cuda {
namespace {

// Says whether an op has queries, keys and values in one operand, x.
template <class Op>
constexpr bool is_packed =
    std::is_same_v<Op, ops::AttentionPacked> || std::is_same_v<Op, ops::AttentionPackedGrad>;

// Names the operand that queries are in.
template <class Op>
consteval OperandNumber<Op> queries_in() {
  if constexpr (is_packed<Op>)
    return "x";
  else
    return "q";
}

// Takes the shape from q[batch, seq, heads, queries, head_dim].
template <class Op>
AttentionShape shape_of(const Tensor& q, const ArgsOf<Op>& op) {
  return {.batch = q.dim[0],
          .seq = q.dim[1],
          .heads = q.dim[2],
          .queries = q.dim[3],
          .head_dim = q.dim[4],
          .causal = op.integer("causal") != 0,
          .window = op.integer("window"),
          .softcap = op.real("softcap")};
}

// Finds queries, keys and values that are packed in x[batch, seq, heads, packed, head_dim].
template <class T>
struct Packed {
  Heads<T> q, k, v;

  Packed(T* x, const AttentionShape& shape) {
    const HeadStrides strides = head_strides(shape, shape.queries + 2);
    q = {x, strides};
    k = {x + shape.queries * shape.head_dim, strides};
    v = {x + (shape.queries + 1) * shape.head_dim, strides};
  }
};

template <class Op>
AttentionShape call_shape(const ArgsOf<Op>& op) {
  AttentionShape shape = shape_of(op[queries_in<Op>()], op);
  if constexpr (is_packed<Op>)
    shape.queries -= 2;
  else
    shape.p = op.real("p");
  if constexpr (takes_all_keys<Op>) {
    shape.keys = op["all_k"].dim[1];
    shape.first = op["q"].start[1];
    shape.chunk = op.integer("chunk");
    shape.chunks = op.integer("chunks");
    shape.ahead = op.integer("ahead");
  }
  return shape;
}

// Packed operands drop nothing.
template <class Op>
AttentionDraws draws_of(const ArgsOf<Op>& op) {
  if constexpr (is_packed<Op>) {
    return {};
  } else {
    const KernelArgs& args = op;
    const Tensor& q = op["q"];
    return {op["samples"].template as<const std::int64_t>(), op["seed"].template as<const double>(),
            static_cast<std::uint32_t>((args.layer << 16) + op.integer("stream") + q.start[2] * q.dim[3])};
  }
}

template <class T, class Op>
AttentionForward<T> forward_of(const KernelArgs& args) {
  const ArgsOf<Op> op(args);
  const AttentionShape shape = call_shape(op);
  const HeadStrides queries = head_strides(shape, shape.queries);
  AttentionForward<T> call{.shape = shape,
                           .q = {},
                           .k = {},
                           .v = {},
                           .y = {op["y"].template as<T>(), queries},
                           .lse = op["lse"].template as<Compute<T>>(),
                           .workspace = args.workspace,
                           .documents = op["documents"].template as<const std::int32_t>(),
                           .draws = draws_of(op)};
  if constexpr (is_packed<Op>) {
    const Packed<const T> x(op["x"].template as<const T>(), shape);
    call.q = x.q, call.k = x.k, call.v = x.v;
  } else {
    const HeadStrides keys = head_strides(shape_of_keys(shape), 1);
    call.q = {op["q"].template as<const T>(), queries};
    call.k = {op[keys_of<Op>()].template as<const T>(), keys};
    call.v = {op[values_of<Op>()].template as<const T>(), keys};
  }
  return call;
}

template <class T, class Op>
AttentionBackward<T> backward_of(const KernelArgs& args) {
  const ArgsOf<Op> op(args);
  const AttentionShape shape = call_shape(op);
  const HeadStrides queries = head_strides(shape, shape.queries);
  AttentionBackward<T> call{.shape = shape,
                            .dy = {op["dy"].template as<const T>(), queries},
                            .q = {},
                            .k = {},
                            .v = {},
                            .y = {op["y"].template as<const T>(), queries},
                            .lse = op["lse"].template as<const Compute<T>>(),
                            .dq = {},
                            .dk = {},
                            .dv = {},
                            .workspace = args.workspace,
                            .documents = op["documents"].template as<const std::int32_t>(),
                            .draws = draws_of(op)};
  if constexpr (is_packed<Op>) {
    const Packed<const T> x(op["x"].template as<const T>(), shape);
    const Packed<T> dx(op["dx"].template as<T>(), shape);
    call.q = x.q, call.k = x.k, call.v = x.v;
    call.dq = dx.q, call.dk = dx.k, call.dv = dx.v;
  } else {
    const HeadStrides keys = head_strides(shape_of_keys(shape), 1);
    call.q = {op["q"].template as<const T>(), queries};
    call.k = {op[keys_of<Op>()].template as<const T>(), keys};
    call.v = {op[values_of<Op>()].template as<const T>(), keys};
    call.dq = {op["dq"].template as<T>(), queries};
    call.dk = {op[key_gradients_of<Op>()].template as<T>(), keys};
    call.dv = {op[value_gradients_of<Op>()].template as<T>(), keys};
  }
  return call;
}

// Is the type of a call's values.
template <class Call>
using ValueOf = std::remove_const_t<std::remove_pointer_t<decltype(Call::y.data)>>;

template <class Call>
AttentionLayout layout_of(const Call& call) {
  return {call.shape,     call.q.strides, call.k.strides,
          call.v.strides, call.y.strides, dtype_of<ValueOf<Call>>()};
}

template <class T>
void run(const AttentionForward<T>& call, AttentionForm form, Stream stream) {
  tensor_attention(call, form, stream);
}
template <class T>
void run(const AttentionBackward<T>& call, AttentionForm form, Stream stream) {
  tensor_attention_backward(call, form, stream);
}
template <class T>
void run(const AttentionForward<T>& call, Stream stream) {
  cuda::attention(call, stream);
}
template <class T>
void run(const AttentionBackward<T>& call, Stream stream) {
  attention_backward(call, stream);
}

// Runs a call by our own kernels, on tensor cores in this form if there is one.
template <class Call>
void run_own(const Call& call, std::optional<AttentionForm> form, Stream stream) {
  if constexpr (is_half<ValueOf<Call>>)
    if (form) return run(call, *form, stream);
  run(call, stream);
}

// Does the same for a call whose chunks may have keys of their own.
template <class Call>
void run_chunks(const Call& call, Stream stream) {
  for_chunks(call, [&](const Call& one, const UnseenKeys& unseen) {
    if constexpr (requires { one.dk; }) clear_unseen(one, unseen, stream);
    run_own(one, tensor_form(one), stream);
  });
}

// Returns the sinks that take their share of what a call computes; null: there are none.
template <class T, class Op>
const T* sinks_of(const KernelArgs& args) {
  return takes_all_keys<Op> ? nullptr : ArgsOf<Op>(args)["sink"].template as<const T>();
}

template <class T, class Op>
void attention(const KernelArgs& args, const KernelContext& context) {
  const AttentionForward<T> call = forward_of<T, Op>(args);
  run_chunks(call, stream_of(context));
  if (const T* const sinks = sinks_of<T, Op>(args))
    take_shares(call.shape, call.y, call.lse, sinks, stream_of(context));
}

template <class T, class Op>
void attention_grad(const KernelArgs& args, const KernelContext& context) {
  run_chunks(backward_of<T, Op>(args), stream_of(context));
}

// Launching graphs with cuDNN's kernels fails now and then with "unknown error" (cuDNN 9.14 to 9.19, driver
// 580), as long as other work is under way: these kernels stay out of graphs.
template <class Call>
Work cudnn_work(const Call& call, bool backward, CudnnAttention* cudnn, Libraries& libraries,
                Stream its_stream) {
  return Work([cudnn, plan = libraries.attention(layout_of(call), backward, its_stream),
               call](Stream) { cudnn->run(*plan, call); },
              false);
}

// ---------------------------------------------------------------- some positions' queries
// Makes the call of one run of queries. Its row sums lie behind those of the runs before it, which is how
// forward leaves them to the gradient.
template <class Call>
Call part_of(Call call, const QueryRun& run) {
  const AttentionShape whole = call.shape;
  call.shape.seq = run.rows;
  call.shape.keys = run.keys;
  call.shape.first = call.shape.chunk = call.shape.chunks = 0;
  call.q.data += run.row * call.q.strides.seq;
  call.y.data += run.row * call.y.strides.seq;
  call.lse += whole.batch * whole.heads * whole.queries * run.row;
  if constexpr (requires { call.dy; }) {
    call.dy.data += run.row * call.dy.strides.seq;
    call.dq.data += run.row * call.dq.strides.seq;
  }
  return call;
}

template <class Call>
struct PreparedRun {
  Call call;
  std::shared_ptr<const CudnnPlan> plan;
};

template <class T>
Work across_work(const AttentionForward<T>& call, CudnnAttention* cudnn, Libraries& libraries,
                 Stream its_stream) {
  std::vector<PreparedRun<AttentionForward<T>>> runs;
  const std::int64_t rows = most_query_rows(layout_of(call), libraries.deterministic());
  for (const QueryRun& run : query_runs(call.shape, rows)) {
    const auto part = part_of(call, run);
    runs.push_back({part, libraries.attention(layout_of(part), false, its_stream)});
  }
  return Work(
      [cudnn, runs](Stream) {
        for (const auto& run : runs) cudnn->run(*run.plan, run.call);
      },
      false);
}

std::int64_t bytes_of_halves(std::int64_t count) {
  return (count * static_cast<std::int64_t>(sizeof(bf16)) + 255) / 256 * 256;
}
std::int64_t bytes_of_keys(const AttentionShape& s) {
  return bytes_of_halves(s.batch * s.keys * s.heads * s.head_dim);
}
std::int64_t bytes_of_queries(const AttentionShape& s) {
  return bytes_of_halves(s.query_rows() * s.head_dim);
}

// Where there are more keys than queries, cuDNN's gradient computes what the mask hides all the same: its
// time is that of a mask that hides nothing. So the keys at the run's own positions are a call like that of a
// whole sequence, and the keys in front of them, which all its queries see, are a call without a mask.
template <class T>
std::vector<AttentionBackward<T>> calls_of(const AttentionBackward<T>& run, T* dq_of_front) {
  const std::int64_t ahead = run.shape.keys - run.shape.seq;
  AttentionBackward<T> own = run, front = run;
  own.shape.keys = 0;
  own.k.data += ahead * run.k.strides.seq;
  own.v.data += ahead * run.v.strides.seq;
  own.dk.data += ahead * run.dk.strides.seq;
  own.dv.data += ahead * run.dv.strides.seq;
  if (ahead == 0) return {own};
  front.shape.keys = ahead;
  front.shape.causal = false;
  front.dq.data = dq_of_front;
  return {own, front};
}

// Computes a run's gradients.
template <class T>
struct BackwardRun {
  AttentionBackward<T> call;
  std::vector<PreparedRun<AttentionBackward<T>>> calls;  // has the run's own, then that of those in front

  void run(const CudnnAttention& cudnn, Stream stream) const {
    for (const auto& one : calls) cudnn.run(*one.plan, one.call);
    if (calls.size() == 1) return;
    const Heads<T>&to = call.dq, &more = calls.back().call.dq;
    for (std::int64_t sample = 0; sample < call.shape.batch; ++sample) {
      const std::int64_t at = sample * to.strides.batch;
      add<T>(to.data + at, more.data + at, to.data + at, call.shape.seq * to.strides.seq, stream);
    }
  }
};

// Adds a run's part to the gradients of its keys, from the workspace.
template <class T>
void add_keys(const Heads<T>& from, const Heads<T>& to, const AttentionShape& run, Stream stream) {
  const std::int64_t count = run.keys * run.heads * run.head_dim;
  for (std::int64_t sample = 0; sample < run.batch; ++sample) {
    const std::int64_t at = sample * to.strides.batch;
    add<T>(from.data + at, to.data + at, to.data + at, count, stream);
  }
}

// No query sees the keys behind these.
template <class T>
void clear_behind(const Heads<T>& gradient, const AttentionShape& s, std::int64_t keys, Stream stream) {
  if (keys == s.keys) return;
  for (std::int64_t sample = 0; sample < s.batch; ++sample)
    zero(gradient.data + sample * gradient.strides.batch + keys * gradient.strides.seq,
         (s.keys - keys) * gradient.strides.seq * static_cast<std::int64_t>(sizeof(T)), stream);
}

// The last run sees most keys: it writes their gradients, and those of the others are added in their order.
template <class T>
Work across_work(const AttentionBackward<T>& call, CudnnAttention* cudnn, Libraries& libraries,
                 Stream its_stream) {
  const std::int64_t rows = most_query_rows(layout_of(call), libraries.deterministic());
  auto* const space = static_cast<char*>(call.workspace);
  const std::int64_t bytes = bytes_of_keys(call.shape);
  std::vector<BackwardRun<T>> runs;
  const std::vector<QueryRun> all = query_runs(call.shape, rows);
  for (std::size_t i = 0; i < all.size(); ++i) {
    AttentionBackward<T> part = part_of(call, all[i]);
    if (i + 1 < all.size()) {
      part.dk.data = reinterpret_cast<T*>(space);
      part.dv.data = reinterpret_cast<T*>(space + bytes);
    }
    part.workspace = space + 2 * bytes + bytes_of_queries(call.shape);
    runs.push_back({part, {}});
    for (const AttentionBackward<T>& one : calls_of(part, reinterpret_cast<T*>(space + 2 * bytes)))
      runs.back().calls.push_back({one, libraries.attention(layout_of(one), true, its_stream)});
  }
  return Work(
      [cudnn, runs, call](Stream stream) {
        const auto& last = runs.back();
        last.run(*cudnn, stream);
        clear_behind(call.dk, call.shape, last.call.shape.keys, stream);
        clear_behind(call.dv, call.shape, last.call.shape.keys, stream);
        for (std::size_t i = 0; i + 1 < runs.size(); ++i) {
          runs[i].run(*cudnn, stream);
          add_keys(runs[i].call.dk, call.dk, runs[i].call.shape, stream);
          add_keys(runs[i].call.dv, call.dv, runs[i].call.shape, stream);
        }
      },
      false);
}

// Binds forward or the gradient, both the same way: the gradient finds row sums as forward left them.
template <class Call>
Work bind_across(const Call& call, Libraries& libraries, Stream stream) {
  CudnnAttention* const cudnn = libraries.cudnn();
  if (cudnn && !call.documents && call.shape.window == 0 && cudnn_refusal(layout_of(call)).empty())
    return across_work(call, cudnn, libraries, stream);
  return [call](Stream on) { run_chunks(call, on); };
}

// Our general kernels are far slower than the others: they take only calls that the others cannot.
template <class Call>
Work bind_call(const Call& call, bool backward, Libraries& libraries, Stream stream) {
  if (call.shape.across()) return bind_across(call, libraries, stream);
  const std::optional<AttentionForm> form = tensor_form(call);
  const auto own = [&]() -> Work { return [call, form](Stream on) { run_own(call, form, on); }; };
  CudnnAttention* const cudnn = libraries.cudnn();
  if (!cudnn || call.documents || !cudnn_refusal(layout_of(call)).empty()) return own();
  if (call.shape.window > 0 && !libraries.has_attention(layout_of(call), backward, stream)) return own();
  const auto by_cudnn = [&] { return cudnn_work(call, backward, cudnn, libraries, stream); };
  if (!form) return by_cudnn();
  return libraries.cudnn_or_own(layout_of(call), backward, by_cudnn, own, stream);
}

template <class T, class Op>
Work bind_forward(const KernelArgs& args, Libraries& libraries, Stream stream) {
  const AttentionForward<T> call = forward_of<T, Op>(args);
  Work own = bind_call(call, false, libraries, stream);
  const T* const sinks = sinks_of<T, Op>(args);
  if (!sinks) return own;
  return Work(
      [own, call, sinks](Stream on) {
        own(on);
        take_shares(call.shape, call.y, call.lse, sinks, on);
      },
      own.captures());
}

template <class Op>
Work bind_attention(Launches launches, Libraries& libraries, Stream stream) {
  const KernelArgs& args = launches.front().args;
  const ArgsOf<Op> op(args);
  return op["y"].dtype == DType::f16 ? bind_forward<f16, Op>(args, libraries, stream)
                                     : bind_forward<bf16, Op>(args, libraries, stream);
}

template <class Op>
Work bind_attention_grad(Launches launches, Libraries& libraries, Stream stream) {
  const KernelArgs& args = launches.front().args;
  const ArgsOf<Op> op(args);
  return op["dy"].dtype == DType::f16 ? bind_call(backward_of<f16, Op>(args), true, libraries, stream)
                                      : bind_call(backward_of<bf16, Op>(args), true, libraries, stream);
}

// Returns the layout of an op's queries, or of its packed x.
template <class Op>
AttentionLayout layout_of(const ShapeOf<Op>& s) {
  const OperandShape& operand = s[queries_in<Op>()];
  const Dim* const dims = operand.dims;
  AttentionShape shape{.batch = dims[0].extent,
                       .seq = dims[1].extent,
                       .heads = dims[2].extent,
                       .queries = dims[3].extent - (is_packed<Op> ? 2 : 0),
                       .head_dim = dims[4].extent,
                       .causal = s.integer("causal") != 0,
                       .window = s.integer("window"),
                       .softcap = s.real("softcap")};
  if constexpr (takes_all_keys<Op>) shape.keys = s["all_k"].dims[1].extent;
  if constexpr (!is_packed<Op>) shape.p = s.real("p");
  const HeadStrides y = head_strides(shape, shape.queries), all = head_strides(shape, shape.queries + 2),
                    keys = head_strides(shape_of_keys(shape), 1);
  return is_packed<Op> ? AttentionLayout{shape, all, all, all, y, operand.dtype}
                       : AttentionLayout{shape, y, keys, keys, y, operand.dtype};
}

// Says whether cuDNN may: it does not keep documents apart, as our own kernels do, and gets no windows where
// queries are of some positions.
template <class Op>
bool cudnn_may(const ShapeOf<Op>& s) {
  if (takes_all_keys<Op> && s.integer("window") != 0) return false;
  return size_of(s[queries_in<Op>()].dtype) == 2 && !s.has("documents") &&
         cudnn_refusal(layout_of(s)).empty();
}

template <class Op>
std::int64_t workspace(const OpShape& shape, std::int32_t) {
  const ShapeOf<Op> s(shape);
  return cudnn_may(s) ? cudnn_workspace(layout_of(s)) : 0;
}

// Returns a workspace that is enough for either. That of cuDNN's kernel which gives the same bits every time
// grows with the square of the length.
template <class Op, bool deterministic>
std::int64_t grad_workspace(const OpShape& shape, std::int32_t) {
  const ShapeOf<Op> s(shape);
  const AttentionLayout layout = layout_of(s);
  const std::int64_t own = by_value(s[queries_in<Op>()].dtype, [&]<class T>() -> std::int64_t {
    return attention_backward_workspace<T>(layout.shape);
  });
  if (!cudnn_may(s)) return own;
  if (!takes_all_keys<Op>) return std::max(own, cudnn_backward_workspace(layout, deterministic));
  AttentionLayout run = layout;
  run.shape.seq = most_query_rows(layout, deterministic);
  return std::max(own, 2 * bytes_of_keys(layout.shape) + bytes_of_queries(layout.shape) +
                           cudnn_most_backward_workspace(run, deterministic));
}

template <class Op>
bool forward_types(const ShapeOf<Op>& s) {
  if constexpr (is_packed<Op>)
    return same_type(s, {"x", "y", "sink"}) && computed_type(s, s["x"].dtype, {"lse"});
  else
    return same_type(s, {"q", keys_of<Op>(), values_of<Op>(), "y", "sink"}) &&
           computed_type(s, s["q"].dtype, {"lse"});
}

template <class Op>
Kernel select_attention(const OpShape& shape) {
  const ShapeOf<Op> s(shape);
  const DType type = s[queries_in<Op>()].dtype;
  if (!forward_types(s)) return nullptr;
  if (takes_all_keys<Op> && s.has("sink")) return nullptr;  // its sums may lie run by run
  if (size_of(type) == 2) return runs_when_bound;
  return by_value(type, []<class T>() -> Kernel { return attention<T, Op>; });
}

template <class Op>
bool backward_types(const ShapeOf<Op>& s) {
  if constexpr (is_packed<Op>)
    return same_type(s, {"dy", "x", "y", "dx"}) && computed_type(s, s["x"].dtype, {"lse"});
  else
    return same_type(s, {"dy", "q", keys_of<Op>(), values_of<Op>(), "y", "dq", key_gradients_of<Op>(),
                         value_gradients_of<Op>()}) &&
           computed_type(s, s["q"].dtype, {"lse"});
}

template <class Op>
Kernel select_attention_grad(const OpShape& shape) {
  const ShapeOf<Op> s(shape);
  const DType type = s[queries_in<Op>()].dtype;
  if (!backward_types(s)) return nullptr;
  if (size_of(type) == 2) return runs_when_bound;
  return by_value(type, []<class T>() -> Kernel { return attention_grad<T, Op>; });
}

template <class T>
void attention_at(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::AttentionAt> op(args);
  const Tensor &q = op["q"], &kept = op["kept_k"];
  cuda::attention_at<T>(
      {q.dim[0], q.dim[1], kept.dim[1], q.dim[2], q.dim[3], q.dim[4], q.as<const T>(), op["k"].as<const T>(),
       op["v"].as<const T>(), op["position"].as<const double>(), kept.as<T>(), op["kept_v"].as<T>(),
       op["y"].as<T>(), op["lse"].as<Compute<T>>(), op.integer("window"), op.real("softcap")},
      stream_of(context));
  const AttentionShape shape = shape_of(q, op);
  if (const T* const sinks = op["sink"].as<const T>())
    take_shares<T>(shape, {op["y"].as<T>(), head_strides(shape, shape.queries)}, op["lse"].as<Compute<T>>(),
                   sinks, stream_of(context));
}

template <class T>
void attention_sink_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::AttentionSinkGrad> op(args);
  const Tensor& y = op["y"];
  const AttentionShape shape{y.dim[0], y.dim[1], y.dim[2], y.dim[3], y.dim[4]};
  cuda::attention_sink_grad<T>(shape, op["dy"].as<const T>(), y.as<const T>(),
                               op["lse"].as<const Compute<T>>(), op["sink"].as<const T>(),
                               op["dsink"].as<T>(), stream_of(context));
}

Kernel select_attention_sink_grad(const OpShape& shape) {
  const ShapeOf<ops::AttentionSinkGrad> s(shape);
  const DType type = s["dy"].dtype;
  if (!same_type(s, {"dy", "y", "sink", "dsink"}) || !computed_type(s, type, {"lse"})) return nullptr;
  return by_value(type, []<class T>() -> Kernel { return attention_sink_grad<T>; });
}

Kernel select_attention_at(const OpShape& shape) {
  const ShapeOf<ops::AttentionAt> s(shape);
  const OperandShape& q = s["q"];
  if (!same_type(s, {"q", "k", "v", "kept_k", "kept_v", "y", "sink"}) ||
      !computed_type(s, q.dtype, {"lse"}) || !all_double(s, {"position"}))
    return nullptr;
  if (q.dims[4].extent > widest_head_at) return nullptr;
  return by_value(q.dtype, []<class T>() -> Kernel { return attention_at<T>; });
}

template <class Op>
DeviceOp attention_op() {
  return {{Op::kind, select_attention<Op>, workspace<Op>}, bind_attention<Op>};
}

template <class Op>
DeviceOp attention_grad_op(bool deterministic) {
  return {{Op::kind, select_attention_grad<Op>,
           deterministic ? grad_workspace<Op, true> : grad_workspace<Op, false>},
          bind_attention_grad<Op>};
}

}  // namespace

std::vector<DeviceOp> attention_ops(const OpChoices& choices) {
  const bool deterministic = choices.deterministic;
  return {attention_op<ops::Attention>(),
          attention_grad_op<ops::AttentionGrad>(deterministic),
          attention_op<ops::AttentionPacked>(),
          attention_grad_op<ops::AttentionPackedGrad>(deterministic),
          attention_op<ops::AttentionAcross>(),
          attention_grad_op<ops::AttentionAcrossGrad>(deterministic),
          {{ops::AttentionAt::kind, select_attention_at}},
          {{ops::AttentionSinkGrad::kind, select_attention_sink_grad}}};
}

}  // namespace prun::cuda
