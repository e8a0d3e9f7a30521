// sum_squares, clip_factor, count_non_finite, adamw and sgd. Neighbours of one kind become one launch.
#include "cuda/optimizer.hpp"

#include <algorithm>

#include "device_op.hpp"

namespace prun::cuda {
namespace {

// Whether operands from `from` on are the very same numbers, those before it of the same types, and the first
// `attrs` attributes equal.
bool alike(const Launch& a, const Launch& b, int from, int attrs) {
  for (int i = 0; i < a.args.operand_count; ++i) {
    const Tensor &x = a.args.operands[i], &y = b.args.operands[i];
    if (i >= from ? x.data != y.data : x.dtype != y.dtype || !x.data != !y.data) return false;
  }
  for (int i = 0; i < attrs; ++i)
    if (a.args.attrs[i].f != b.args.attrs[i].f) return false;
  return true;
}

template <class T>
Work bind_sum_squares_of(Launches launches) {
  std::vector<Values<T>> tensors;
  for (const Launch& launch : launches)
    tensors.push_back({data<const T>(launch.args, 0), launch.args.operands[0].elements()});
  const KernelArgs& args = launches.front().args;
  return [tensors = std::move(tensors), sum = data<double>(args, 1),
          workspace = args.workspace](Stream stream) { sum_squares<T>(tensors, sum, workspace, stream); };
}

Work bind_sum_squares(Launches launches, Libraries&, Stream) {
  return by_value(launches.front().args.operands[0].dtype,
                  [&]<class T>() -> Work { return bind_sum_squares_of<T>(launches); });
}

void clip_factor(const KernelArgs& args, const KernelContext& context) {
  const ClipFactor numbers{data<const double>(args, 0), data<const double>(args, 1),
                           data<const double>(args, 2), data<double>(args, 3),
                           data<double>(args, 4),       data<double>(args, 5)};
  cuda::clip_factor(numbers, args.attrs[0].f, stream_of(context));
}

// Of a flat range that several tensors share, each counts its own elements.
template <class T>
CountedValues<T> counted_values(const KernelArgs& args) {
  const Tensor& x = args.operands[0];
  const std::int64_t first = args.attrs[2].i - x.start[0], elements = args.attrs[3].i;
  const std::int64_t from = elements > 0 ? std::max<std::int64_t>(first, 0) : 0;
  const std::int64_t to = elements > 0 ? std::min(first + elements, x.elements()) : x.elements();
  return {data<const T>(args, 0) + from, std::max<std::int64_t>(to - from, 0),
          data<double>(args, 2) + args.attrs[0].i + args.layer * args.attrs[1].i};
}

template <class T>
Work bind_count_of(Launches launches) {
  std::vector<CountedValues<T>> tensors;
  for (const Launch& launch : launches)
    if (const CountedValues<T> values = counted_values<T>(launch.args); values.elements > 0)
      tensors.push_back(values);
  return [tensors = std::move(tensors), keep = data<const double>(launches.front().args, 1)](Stream stream) {
    if (!tensors.empty()) count_non_finite<T>(tensors, keep, stream);
  };
}

Work bind_count(Launches launches, Libraries&, Stream) {
  return by_value(launches.front().args.operands[0].dtype,
                  [&]<class T>() -> Work { return bind_count_of<T>(launches); });
}

template <class T>
Work bind_adamw_of(Launches launches) {
  std::vector<AdamTensor<T>> tensors;
  for (const Launch& launch : launches) {
    const KernelArgs& args = launch.args;
    tensors.push_back({data<T>(args, 0), data<Compute<T>>(args, 1), data<const Compute<T>>(args, 2),
                       data<Compute<T>>(args, 3), data<Compute<T>>(args, 4), args.operands[0].elements(),
                       args.attrs[3].f, args.attrs[4].f});
  }
  const KernelArgs& args = launches.front().args;
  const AdamSettings settings{args.attrs[0].f,
                              args.attrs[1].f,
                              args.attrs[2].f,
                              data<const double>(args, 5),
                              data<const double>(args, 6),
                              data<const double>(args, 7),
                              data<const double>(args, 8)};
  return [tensors = std::move(tensors), settings](Stream stream) { adamw<T>(tensors, settings, stream); };
}

Work bind_adamw(Launches launches, Libraries&, Stream) {
  return by_value(launches.front().args.operands[0].dtype,
                  [&]<class T>() -> Work { return bind_adamw_of<T>(launches); });
}

template <class T>
Work bind_sgd_of(Launches launches) {
  std::vector<SgdTensor<T>> tensors;
  for (const Launch& launch : launches) {
    const KernelArgs& args = launch.args;
    tensors.push_back({data<T>(args, 0), data<Compute<T>>(args, 1), data<const Compute<T>>(args, 2),
                       data<Compute<T>>(args, 3), args.operands[0].elements(), args.attrs[1].f,
                       args.attrs[2].f});
  }
  const KernelArgs& args = launches.front().args;
  const SgdSettings settings{args.attrs[0].f, data<const double>(args, 4), data<const double>(args, 5),
                             data<const double>(args, 6)};
  return [tensors = std::move(tensors), settings](Stream stream) { sgd<T>(tensors, settings, stream); };
}

Work bind_sgd(Launches launches, Libraries&, Stream) {
  return by_value(launches.front().args.operands[0].dtype,
                  [&]<class T>() -> Work { return bind_sgd_of<T>(launches); });
}

std::int64_t sum_squares_workspace_of(const OpShape&, std::int32_t) { return sum_squares_workspace(); }

Kernel select_sum_squares(const OpShape& s) {
  if (!all_double(s, 1, 2)) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return runs_when_bound; });
}

Kernel select_count(const OpShape& s) {
  if (!all_double(s, 1, 3)) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return runs_when_bound; });
}

Kernel select_clip_factor(const OpShape& s) { return all_double(s, 0, 6) ? clip_factor : nullptr; }

Kernel select_adamw(const OpShape& s) {
  const DType type = s.operand[0].dtype;
  if (!computed_type(s, type, {1, 2, 3, 4}) || !all_double(s, 5, 9)) return nullptr;
  return by_value(type, []<class T>() -> Kernel { return runs_when_bound; });
}

// Momentum without a buffer to keep it in is refused.
Kernel select_sgd(const OpShape& s) {
  const DType type = s.operand[0].dtype;
  if (!computed_type(s, type, {1, 2, 3}) || !all_double(s, 4, 7)) return nullptr;
  if (s.attrs[0].f != 0 && !s.operand[3].present) return nullptr;
  return by_value(type, []<class T>() -> Kernel { return runs_when_bound; });
}

}  // namespace

std::vector<DeviceOp> optimizer_ops() {
  return {
      {{"sum_squares", select_sum_squares, sum_squares_workspace_of},
       bind_sum_squares,
       [](const Launch& a, const Launch& b) { return alike(a, b, 1, 0); }},
      {{"clip_factor", select_clip_factor}},
      {{"count_non_finite", select_count},
       bind_count,
       [](const Launch& a, const Launch& b) { return alike(a, b, 1, 0); }},
      {{"adamw", select_adamw},
       bind_adamw,
       [](const Launch& a, const Launch& b) { return alike(a, b, 5, 3); }},
      {{"sgd", select_sgd}, bind_sgd, [](const Launch& a, const Launch& b) { return alike(a, b, 4, 1); }}};
}

}  // namespace prun::cuda
