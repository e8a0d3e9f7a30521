// Launches add_parts, take_part, pair and half.
#include "parts/cuda.hpp"

#include "device_op.hpp"
#include "prun/ops/parts.hpp"

namespace prun::cuda {
namespace {

// Describes x as rows of dimension `dim` and all behind it, and the elements of a part within a row.
struct Cut {
  PartsShape shape;
  std::int64_t unit;

  Cut(const Tensor& x, std::int64_t dim)
      : shape{x.outer(x.rank - static_cast<int>(dim)), x.inner(x.rank - static_cast<int>(dim))},
        unit(x.inner(x.rank - static_cast<int>(dim) - 1)) {}
  RowPart part(std::int64_t begin, std::int64_t end) const { return {begin * unit, end * unit}; }
};

template <class T>
void add_parts(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::AddParts> op(args);
  const Cut cut(op["a"], op.integer("dim"));
  AddedParts<T> parts;
  int number = 0;
  const auto add = [&](const Tensor& from, std::int64_t begin, std::int64_t end) {
    if (from.data) parts.from[number] = from.as<const T>(), parts.at[number] = cut.part(begin, end);
    ++number;
  };
  static_assert(most_row_parts == 3);
  add(op["b"], op.integer("begin_b"), op.integer("end_b"));
  add(op["c"], op.integer("begin_c"), op.integer("end_c"));
  add(op["d"], op.integer("begin_d"), op.integer("end_d"));
  cuda::add_parts(op["a"].as<const T>(), parts, op["y"].as<T>(), cut.shape, stream_of(context));
}

template <class T>
void take_part(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::TakePart> op(args);
  const Cut cut(op["x"], op.integer("dim"));
  cuda::take_part(op["x"].as<const T>(), op["y"].as<T>(), cut.part(op.integer("begin"), op.integer("end")),
                  cut.shape, stream_of(context));
}

template <class T>
void pair(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Pair> op(args);
  const Tensor& y = op["y"];
  const PartsShape shape{y.outer(1), y.inner(1)};
  const std::int64_t half = shape.width / 2;
  cuda::put_part(op["a"].as<const T>(), y.as<T>(), {0, half}, shape, stream_of(context));
  cuda::put_part(op["b"].as<const T>(), y.as<T>(), {half, 2 * half}, shape, stream_of(context));
}

template <class T>
void half(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Half> op(args);
  const Tensor& x = op["pair"];
  const PartsShape shape{x.outer(1), x.inner(1)};
  const std::int64_t n = shape.width / 2, begin = op.integer("second") * n;
  cuda::take_part(x.as<const T>(), op["y"].as<T>(), {begin, begin + n}, shape, stream_of(context));
}

Kernel select_add_parts(const OpShape& shape) {
  const ShapeOf<ops::AddParts> s(shape);
  if (!same_type(s, {"a", "b", "c", "d", "y"})) return nullptr;
  return by_value(s["a"].dtype, []<class T>() -> Kernel { return add_parts<T>; });
}

Kernel select_take_part(const OpShape& shape) {
  const ShapeOf<ops::TakePart> s(shape);
  if (!same_type(s, {"x", "y"})) return nullptr;
  if (s["x"].dtype == DType::i32) return take_part<std::int32_t>;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return take_part<T>; });
}

Kernel select_pair(const OpShape& shape) {
  const ShapeOf<ops::Pair> s(shape);
  if (!same_type(s, {"a", "b"}) || !same_type(s, {"a", "y"})) return nullptr;
  return by_value(s["a"].dtype, []<class T>() -> Kernel { return pair<T>; });
}

Kernel select_half(const OpShape& shape) {
  const ShapeOf<ops::Half> s(shape);
  if (!same_type(s, {"pair", "y"})) return nullptr;
  return by_value(s["pair"].dtype, []<class T>() -> Kernel { return half<T>; });
}

}  // namespace

std::vector<DeviceOp> parts_ops(const OpChoices&) {
  return {{{ops::AddParts::kind, select_add_parts}},
          {{ops::TakePart::kind, select_take_part}},
          {{ops::Pair::kind, select_pair}},
          {{ops::Half::kind, select_half}}};
}

}  // namespace prun::cuda
