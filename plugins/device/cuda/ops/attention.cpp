// Launches attention and its gradient, for queries, keys and values apart or packed. In 16-bit types the op
// is bound: to cuDNN or, in bf16, our own kernels on tensor cores, whichever is faster, where they support
// the call.
#include "cuda/attention.hpp"

#include <algorithm>

#include "cuda/attention_at.hpp"
#include "cuda/attention_chunks.hpp"
#include "cuda/elementwise.hpp"
#include "cuda/memory.hpp"
#include "cuda/tensor_attention.hpp"
#include "device_op.hpp"
#include "libraries.hpp"

namespace prun::cuda {
namespace {

// Queries, keys and values are given apart, packed, or apart with keys and values of more positions.
enum class Given { apart, packed, across };

// Takes the shape from q[batch, seq, heads, queries, head_dim].
AttentionShape shape_of(const Tensor& q, const KernelArgs& args) {
  return {.batch = q.dim[0],
          .seq = q.dim[1],
          .heads = q.dim[2],
          .queries = q.dim[3],
          .head_dim = q.dim[4],
          .causal = args.attrs[0].i != 0,
          .window = args.attrs[1].i};
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

AttentionShape packed_shape(const Tensor& x, const KernelArgs& args) {
  AttentionShape shape = shape_of(x, args);
  shape.queries = x.dim[3] - 2;
  return shape;
}

// Takes the shape from queries q and, after them, the keys q + 1.
template <Given given>
AttentionShape apart_shape(const KernelArgs& args, int q) {
  AttentionShape shape = shape_of(args.operands[q], args);
  if constexpr (given == Given::across) {
    shape.keys = args.operands[q + 1].dim[1];
    shape.first = args.operands[q].start[1];
    shape.chunk = args.attrs[2].i;
    shape.chunks = args.attrs[3].i;
    shape.ahead = args.attrs[4].i;
  }
  return shape;
}

template <class T, Given given>
AttentionForward<T> forward_of(const KernelArgs& args) {
  if constexpr (given == Given::packed) {
    const AttentionShape shape = packed_shape(args.operands[0], args);
    const Packed<const T> x(data<const T>(args, 0), shape);
    return {.shape = shape,
            .q = x.q,
            .k = x.k,
            .v = x.v,
            .y = {data<T>(args, 1), head_strides(shape, shape.queries)},
            .lse = data<Compute<T>>(args, 2),
            .workspace = args.workspace,
            .documents = data<const std::int32_t>(args, 3)};
  } else {
    const AttentionShape shape = apart_shape<given>(args, 0);
    const HeadStrides queries = head_strides(shape, shape.queries),
                      keys = head_strides(shape_of_keys(shape), 1);
    return {.shape = shape,
            .q = {data<const T>(args, 0), queries},
            .k = {data<const T>(args, 1), keys},
            .v = {data<const T>(args, 2), keys},
            .y = {data<T>(args, 3), queries},
            .lse = data<Compute<T>>(args, 4),
            .workspace = args.workspace,
            .documents = data<const std::int32_t>(args, 5)};
  }
}

template <class T, Given given>
AttentionBackward<T> backward_of(const KernelArgs& args) {
  if constexpr (given == Given::packed) {
    const AttentionShape shape = packed_shape(args.operands[1], args);
    const HeadStrides queries = head_strides(shape, shape.queries);
    const Packed<const T> x(data<const T>(args, 1), shape);
    const Packed<T> dx(data<T>(args, 4), shape);
    return {.shape = shape,
            .dy = {data<const T>(args, 0), queries},
            .q = x.q,
            .k = x.k,
            .v = x.v,
            .y = {data<const T>(args, 2), queries},
            .lse = data<const Compute<T>>(args, 3),
            .dq = dx.q,
            .dk = dx.k,
            .dv = dx.v,
            .workspace = args.workspace,
            .documents = data<const std::int32_t>(args, 5)};
  } else {
    const AttentionShape shape = apart_shape<given>(args, 1);
    const HeadStrides queries = head_strides(shape, shape.queries),
                      keys = head_strides(shape_of_keys(shape), 1);
    return {.shape = shape,
            .dy = {data<const T>(args, 0), queries},
            .q = {data<const T>(args, 1), queries},
            .k = {data<const T>(args, 2), keys},
            .v = {data<const T>(args, 3), keys},
            .y = {data<const T>(args, 4), queries},
            .lse = data<const Compute<T>>(args, 5),
            .dq = {data<T>(args, 6), queries},
            .dk = {data<T>(args, 7), keys},
            .dv = {data<T>(args, 8), keys},
            .workspace = args.workspace,
            .documents = data<const std::int32_t>(args, 9)};
  }
}

// Is the type of a call's values.
template <class Call>
using ValueOf = std::remove_const_t<std::remove_pointer_t<decltype(Call::y.data)>>;

template <class Call>
AttentionLayout layout_of(const Call& call) {
  return {call.shape,     call.q.strides, call.k.strides,
          call.v.strides, call.y.strides, dtype_of<ValueOf<Call>>()};
}

void run(const AttentionForward<bf16>& call, AttentionForm form, Stream stream) {
  tensor_attention(call, form, stream);
}
void run(const AttentionBackward<bf16>& call, AttentionForm form, Stream stream) {
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

// Runs a call by our own kernels: on tensor cores if these take it.
template <class Call>
void run_own(const Call& call, Stream stream) {
  if constexpr (std::is_same_v<ValueOf<Call>, bf16>)
    if (tensor_attention_takes(call)) return run(call, attention_form(call.shape), stream);
  run(call, stream);
}

// Does the same for a call whose chunks may have keys of their own.
template <class Call>
void run_chunks(const Call& call, Stream stream) {
  for_chunks(call, [&](const Call& one, const UnseenKeys& unseen) {
    if constexpr (requires { one.dk; }) clear_unseen(one, unseen, stream);
    run_own(one, stream);
  });
}

template <class T, Given given>
void attention(const KernelArgs& args, const KernelContext& context) {
  run_chunks(forward_of<T, given>(args), stream_of(context));
}

template <class T, Given given>
void attention_grad(const KernelArgs& args, const KernelContext& context) {
  run_chunks(backward_of<T, given>(args), stream_of(context));
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
  bool on_tensor_cores = false;
  if constexpr (std::is_same_v<ValueOf<Call>, bf16>) on_tensor_cores = tensor_attention_takes(call);
  const auto own = [&]() -> Work {
    if constexpr (std::is_same_v<ValueOf<Call>, bf16>)
      if (on_tensor_cores)
        return [call, form = attention_form(call.shape)](Stream on) { run(call, form, on); };
    return [call](Stream on) { run(call, on); };
  };
  CudnnAttention* const cudnn = libraries.cudnn();
  if (!cudnn || call.documents || !cudnn_refusal(layout_of(call)).empty()) return own();
  if (call.shape.window > 0 && !libraries.has_attention(layout_of(call), backward, stream)) return own();
  const auto by_cudnn = [&] { return cudnn_work(call, backward, cudnn, libraries, stream); };
  if (!on_tensor_cores) return by_cudnn();
  return libraries.cudnn_or_own(layout_of(call), backward, by_cudnn, own, stream);
}

template <Given given>
Work bind_attention(Launches launches, Libraries& libraries, Stream stream) {
  const KernelArgs& args = launches.front().args;
  return args.operands[0].dtype == DType::f16
             ? bind_call(forward_of<f16, given>(args), false, libraries, stream)
             : bind_call(forward_of<bf16, given>(args), false, libraries, stream);
}

template <Given given>
Work bind_attention_grad(Launches launches, Libraries& libraries, Stream stream) {
  const KernelArgs& args = launches.front().args;
  return args.operands[0].dtype == DType::f16
             ? bind_call(backward_of<f16, given>(args), true, libraries, stream)
             : bind_call(backward_of<bf16, given>(args), true, libraries, stream);
}

// Returns the layout of an op's queries, or of its packed x.
template <Given given>
AttentionLayout layout_of(const OpShape& s, int operand) {
  const Dim* dims = s.operand[operand].dims;
  constexpr bool packed = given == Given::packed;
  AttentionShape shape{.batch = dims[0].extent,
                       .seq = dims[1].extent,
                       .heads = dims[2].extent,
                       .queries = dims[3].extent - (packed ? 2 : 0),
                       .head_dim = dims[4].extent,
                       .causal = s.attrs[0].i != 0,
                       .window = s.attrs[1].i};
  if (given == Given::across) shape.keys = s.operand[operand + 1].dims[1].extent;
  const HeadStrides y = head_strides(shape, shape.queries), all = head_strides(shape, shape.queries + 2),
                    keys = head_strides(shape_of_keys(shape), 1);
  const DType type = s.operand[operand].dtype;
  return packed ? AttentionLayout{shape, all, all, all, y, type}
                : AttentionLayout{shape, y, keys, keys, y, type};
}

// Says whether cuDNN may: it does not keep documents apart (the last operand), as our own kernels do, and
// gets no windows where queries are of some positions.
template <Given given>
bool cudnn_may(const OpShape& s, int operand) {
  if (given == Given::across && s.attrs[1].i != 0) return false;
  return size_of(s.operand[operand].dtype) == 2 && !s.operand[s.count - 1].present &&
         cudnn_refusal(layout_of<given>(s, operand)).empty();
}

template <Given given>
std::int64_t workspace(const OpShape& s, std::int32_t) {
  return cudnn_may<given>(s, 0) ? cudnn_workspace(layout_of<given>(s, 0)) : 0;
}

// Returns a workspace that is enough for either. That of cuDNN's kernel which gives the same bits every time
// grows with the square of the length.
template <Given given, bool deterministic>
std::int64_t grad_workspace(const OpShape& s, std::int32_t) {
  const AttentionLayout layout = layout_of<given>(s, 1);
  const std::int64_t own = by_value(s.operand[1].dtype, [&]<class T>() -> std::int64_t {
    return attention_backward_workspace<T>(layout.shape);
  });
  if (!cudnn_may<given>(s, 1)) return own;
  if (given != Given::across) return std::max(own, cudnn_backward_workspace(layout, deterministic));
  AttentionLayout run = layout;
  run.shape.seq = most_query_rows(layout, deterministic);
  return std::max(own, 2 * bytes_of_keys(layout.shape) + bytes_of_queries(layout.shape) +
                           cudnn_most_backward_workspace(run, deterministic));
}

template <Given given>
Kernel select_attention(const OpShape& s) {
  const DType type = s.operand[0].dtype;
  const bool fits = given == Given::packed ? same_type(s, {0, 1}) && computed_type(s, type, {2})
                                           : same_type(s, {0, 1, 2, 3}) && computed_type(s, type, {4});
  if (!fits) return nullptr;
  if (size_of(type) == 2) return runs_when_bound;
  return by_value(type, []<class T>() -> Kernel { return attention<T, given>; });
}

template <Given given>
Kernel select_attention_grad(const OpShape& s) {
  const DType type = s.operand[1].dtype;
  const bool fits = given == Given::packed
                        ? same_type(s, {0, 1, 2, 4}) && computed_type(s, type, {3})
                        : same_type(s, {0, 1, 2, 3, 4, 6, 7, 8}) && computed_type(s, type, {5});
  if (!fits) return nullptr;
  if (size_of(type) == 2) return runs_when_bound;
  return by_value(type, []<class T>() -> Kernel { return attention_grad<T, given>; });
}

template <class T>
void attention_at(const KernelArgs& args, const KernelContext& context) {
  const Tensor &q = args.operands[0], &kept = args.operands[4];
  cuda::attention_at<T>(
      {q.dim[0], q.dim[1], kept.dim[1], q.dim[2], q.dim[3], q.dim[4], data<const T>(args, 0),
       data<const T>(args, 1), data<const T>(args, 2), data<const double>(args, 3), data<T>(args, 4),
       data<T>(args, 5), data<T>(args, 6), data<Compute<T>>(args, 7), args.attrs[1].i},
      stream_of(context));
}

Kernel select_attention_at(const OpShape& s) {
  const OperandShape& q = s.operand[0];
  if (!same_type(s, {0, 1, 2, 4, 5, 6}) || !computed_type(s, q.dtype, {7}) || !all_double(s, 3, 4))
    return nullptr;
  if (q.dims[4].extent > widest_head_at) return nullptr;
  return by_value(q.dtype, []<class T>() -> Kernel { return attention_at<T>; });
}

}  // namespace

std::vector<DeviceOp> attention_ops(const OpChoices& choices) {
  constexpr Given apart = Given::apart, packed = Given::packed, across = Given::across;
  const bool deterministic = choices.deterministic;
  const auto bytes = deterministic ? grad_workspace<apart, true> : grad_workspace<apart, false>;
  const auto packed_bytes = deterministic ? grad_workspace<packed, true> : grad_workspace<packed, false>;
  const auto across_bytes = deterministic ? grad_workspace<across, true> : grad_workspace<across, false>;
  std::vector<DeviceOp> ops = {
      {{"attention", select_attention<apart>, workspace<apart>}, bind_attention<apart>},
      {{"attention_grad", select_attention_grad<apart>, bytes}, bind_attention_grad<apart>},
      {{"attention_packed", select_attention<packed>, workspace<packed>}, bind_attention<packed>},
      {{"attention_packed_grad", select_attention_grad<packed>, packed_bytes}, bind_attention_grad<packed>},
      {{"attention_across", select_attention<across>, workspace<across>}, bind_attention<across>},
      {{"attention_across_grad", select_attention_grad<across>, across_bytes}, bind_attention_grad<across>}};
  ops.push_back({{"attention_at", select_attention_at}});
  return ops;
}

}  // namespace prun::cuda
