// Launches send_rows, send_choices, return_rows and count_rows.
#include "cuda/rows.hpp"

#include "device_op.hpp"

namespace prun::cuda {
namespace {

RowsShape shape_of(const KernelArgs& args, const Tensor& index) {
  return {index.dim[0], index.dim[1], index.dim[2], args.attrs[0].i, args.attrs[1].i, args.attrs[2].i};
}

RowsShape shape_of(const OpShape& s, int index) {
  const Dim* const dims = s.operand[index].dims;
  return {dims[0].extent, dims[1].extent, dims[2].extent, s.attrs[0].i, s.attrs[1].i, s.attrs[2].i};
}

template <class T>
void send_rows(const KernelArgs& args, const KernelContext& context) {
  cuda::send_rows<T>(data<const T>(args, 0), data<const std::int32_t>(args, 1), data<T>(args, 2),
                     shape_of(args, args.operands[1]), args.operands[0].dim[2], args.workspace,
                     stream_of(context));
}

template <class C>
void send_choices(const KernelArgs& args, const KernelContext& context) {
  cuda::send_choices<C>(data<const std::int32_t>(args, 0), data<const C>(args, 1),
                        data<std::int32_t>(args, 2), data<C>(args, 3), shape_of(args, args.operands[0]),
                        args.workspace, stream_of(context));
}

template <class T>
void return_rows(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  const ReturnedRows<T> of{data<const T>(args, 0), data<const C>(args, 2), data<T>(args, 3),
                           data<C>(args, 4)};
  cuda::return_rows<T>(of, data<const std::int32_t>(args, 1), shape_of(args, args.operands[1]),
                       args.operands[0].dim[3], args.workspace, stream_of(context));
}

void count_rows(const KernelArgs& args, const KernelContext& context) {
  cuda::count_rows(data<const std::int32_t>(args, 0), data<double>(args, 1) + 2 * args.layer, args.attrs[3].f,
                   shape_of(args, args.operands[0]), args.workspace, stream_of(context));
}

Kernel select_send_rows(const OpShape& s) {
  if (!same_type(s, {0, 2}) || !have_type(s, DType::i32, {1})) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return send_rows<T>; });
}

Kernel select_send_choices(const OpShape& s) {
  if (!have_type(s, DType::i32, {0, 2}) || !same_type(s, {1, 3})) return nullptr;
  const DType type = s.operand[1].dtype;
  return type == DType::f64 ? send_choices<double> : type == DType::f32 ? send_choices<float> : nullptr;
}

Kernel select_return_rows(const OpShape& s) {
  if (!same_type(s, {0, 3}) || !have_type(s, DType::i32, {1}) ||
      !computed_type(s, s.operand[0].dtype, {2, 4}))
    return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return return_rows<T>; });
}

Kernel select_count_rows(const OpShape& s) {
  return have_type(s, DType::i32, {0}) && have_type(s, DType::f64, {1}) ? count_rows : nullptr;
}

std::int64_t send_room(const OpShape& s, std::int32_t) { return cuda::send_workspace(shape_of(s, 1)); }
std::int64_t choices_room(const OpShape& s, std::int32_t) { return cuda::send_workspace(shape_of(s, 0)); }
std::int64_t return_room(const OpShape& s, std::int32_t) { return cuda::return_workspace(shape_of(s, 1)); }
std::int64_t count_room(const OpShape& s, std::int32_t) { return cuda::count_workspace(shape_of(s, 0)); }

}  // namespace

std::vector<DeviceOp> rows_ops(const OpChoices&) {
  return {{{"send_rows", select_send_rows, send_room}},
          {{"send_choices", select_send_choices, choices_room}},
          {{"return_rows", select_return_rows, return_room}},
          {{"count_rows", select_count_rows, count_room}}};
}

}  // namespace prun::cuda
