// Launches add_parts, take_part, pair and half.
#include "cuda/parts.hpp"

#include "device_op.hpp"

namespace prun::cuda {
namespace {

// Describes x as rows of dimension `dim` and all behind it, and the elements of a part within a row.
struct Cut {
  PartsShape shape;
  std::int64_t unit;

  Cut(const Tensor& x, std::int64_t dim)
      : shape{x.outer(x.rank - static_cast<int>(dim)), x.inner(x.rank - static_cast<int>(dim))},
        unit(x.inner(x.rank - static_cast<int>(dim) - 1)) {}
  RowPart part(const Attr& begin, const Attr& end) const { return {begin.i * unit, end.i * unit}; }
};

template <class T>
void add_parts(const KernelArgs& args, const KernelContext& context) {
  const Cut cut(args.operands[0], args.attrs[0].i);
  AddedParts<T> parts;
  for (int i = 0; i < most_row_parts; ++i) {
    if (!args.operands[1 + i].data) continue;
    parts.from[i] = data<const T>(args, 1 + i);
    parts.at[i] = cut.part(args.attrs[1 + 2 * i], args.attrs[2 + 2 * i]);
  }
  cuda::add_parts(data<const T>(args, 0), parts, data<T>(args, 4), cut.shape, stream_of(context));
}

template <class T>
void take_part(const KernelArgs& args, const KernelContext& context) {
  const Cut cut(args.operands[0], args.attrs[0].i);
  cuda::take_part(data<const T>(args, 0), data<T>(args, 1), cut.part(args.attrs[1], args.attrs[2]), cut.shape,
                  stream_of(context));
}

template <class T>
void pair(const KernelArgs& args, const KernelContext& context) {
  const Tensor& y = args.operands[2];
  const PartsShape shape{y.outer(1), y.inner(1)};
  const std::int64_t half = shape.width / 2;
  for (int i = 0; i < 2; ++i)
    cuda::put_part(data<const T>(args, i), data<T>(args, 2), {i * half, (i + 1) * half}, shape,
                   stream_of(context));
}

template <class T>
void half(const KernelArgs& args, const KernelContext& context) {
  const Tensor& x = args.operands[0];
  const PartsShape shape{x.outer(1), x.inner(1)};
  const std::int64_t n = shape.width / 2, begin = args.attrs[0].i * n;
  cuda::take_part(data<const T>(args, 0), data<T>(args, 1), {begin, begin + n}, shape, stream_of(context));
}

Kernel select_add_parts(const OpShape& s) {
  for (int i = 1; i <= most_row_parts; ++i)
    if (s.operand[i].present && !same_type(s, {0, i})) return nullptr;
  if (!same_type(s, {0, 4})) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return add_parts<T>; });
}

Kernel select_take_part(const OpShape& s) {
  if (!same_type(s, {0, 1})) return nullptr;
  if (s.operand[0].dtype == DType::i32) return take_part<std::int32_t>;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return take_part<T>; });
}

Kernel select_pair(const OpShape& s) {
  if (!same_type(s, {0, 1}) || !same_type(s, {0, 2})) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return pair<T>; });
}

Kernel select_half(const OpShape& s) {
  if (!same_type(s, {0, 1})) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return half<T>; });
}

}  // namespace

std::vector<DeviceOp> parts_ops(const OpChoices&) {
  return {{{"add_parts", select_add_parts}},
          {{"take_part", select_take_part}},
          {{"pair", select_pair}},
          {{"half", select_half}}};
}

}  // namespace prun::cuda
