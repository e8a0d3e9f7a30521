// Launches send_rows, send_choices, return_rows and count_rows.
#include "rows/cuda.hpp"

#include "device_op.hpp"
#include "prun/ops/rows.hpp"

namespace prun::cuda {
namespace {

template <class Op>
RowsShape rows_shape(const ArgsOf<Op>& op) {
  const Tensor& index = op["index"];
  return {index.dim[0],        index.dim[1],       index.dim[2],
          op.integer("parts"), op.integer("rows"), op.integer("experts")};
}

template <class Op>
RowsShape rows_shape(const ShapeOf<Op>& s) {
  const Dim* const dims = s["index"].dims;
  return {dims[0].extent,     dims[1].extent,    dims[2].extent,
          s.integer("parts"), s.integer("rows"), s.integer("experts")};
}

template <class T>
void send_rows(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::SendRows> op(args);
  cuda::send_rows<T>(op["x"].as<const T>(), op["index"].as<const std::int32_t>(), op["rows"].as<T>(),
                     rows_shape(op), op["x"].dim[2], args.workspace, stream_of(context));
}

template <class C>
void send_choices(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::SendChoices> op(args);
  cuda::send_choices<C>(op["index"].as<const std::int32_t>(), op["weight"].as<const C>(),
                        op["row_index"].as<std::int32_t>(), op["row_weight"].as<C>(), rows_shape(op),
                        args.workspace, stream_of(context));
}

template <class T>
void return_rows(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::ReturnRows> op(args);
  using C = Compute<T>;
  const ReturnedRows<T> of{op["rows"].as<const T>(), op["row_numbers"].as<const C>(), op["y"].as<T>(),
                           op["numbers"].as<C>()};
  cuda::return_rows<T>(of, op["index"].as<const std::int32_t>(), rows_shape(op), op["rows"].dim[3],
                       args.workspace, stream_of(context));
}

void count_rows(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::CountRows> op(args);
  cuda::count_rows(op["index"].as<const std::int32_t>(), op["needed"].as<double>() + 2 * args.layer,
                   op.real("mean"), rows_shape(op), args.workspace, stream_of(context));
}

Kernel select_send_rows(const OpShape& shape) {
  const ShapeOf<ops::SendRows> s(shape);
  if (!same_type(s, {"x", "rows"}) || !have_type(s, DType::i32, {"index"})) return nullptr;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return send_rows<T>; });
}

Kernel select_send_choices(const OpShape& shape) {
  const ShapeOf<ops::SendChoices> s(shape);
  if (!have_type(s, DType::i32, {"index", "row_index"}) || !same_type(s, {"weight", "row_weight"}))
    return nullptr;
  const DType type = s["weight"].dtype;
  return type == DType::f64 ? send_choices<double> : type == DType::f32 ? send_choices<float> : nullptr;
}

Kernel select_return_rows(const OpShape& shape) {
  const ShapeOf<ops::ReturnRows> s(shape);
  if (!same_type(s, {"rows", "y"}) || !have_type(s, DType::i32, {"index"}) ||
      !computed_type(s, s["rows"].dtype, {"row_numbers", "numbers"}))
    return nullptr;
  return by_value(s["rows"].dtype, []<class T>() -> Kernel { return return_rows<T>; });
}

Kernel select_count_rows(const OpShape& shape) {
  const ShapeOf<ops::CountRows> s(shape);
  return have_type(s, DType::i32, {"index"}) && have_type(s, DType::f64, {"needed"}) ? count_rows : nullptr;
}

std::int64_t send_room(const OpShape& shape, std::int32_t) {
  const ShapeOf<ops::SendRows> s(shape);
  return cuda::send_workspace(rows_shape(s));
}
std::int64_t choices_room(const OpShape& shape, std::int32_t) {
  const ShapeOf<ops::SendChoices> s(shape);
  return cuda::send_workspace(rows_shape(s));
}
std::int64_t return_room(const OpShape& shape, std::int32_t) {
  const ShapeOf<ops::ReturnRows> s(shape);
  return cuda::return_workspace(rows_shape(s));
}
std::int64_t count_room(const OpShape& shape, std::int32_t) {
  const ShapeOf<ops::CountRows> s(shape);
  return cuda::count_workspace(rows_shape(s));
}

}  // namespace

std::vector<DeviceOp> rows_ops(const OpChoices&) {
  return {{{ops::SendRows::kind, select_send_rows, send_room}},
          {{ops::SendChoices::kind, select_send_choices, choices_room}},
          {{ops::ReturnRows::kind, select_return_rows, return_room}},
          {{ops::CountRows::kind, select_count_rows, count_room}}};
}

}  // namespace prun::cuda
