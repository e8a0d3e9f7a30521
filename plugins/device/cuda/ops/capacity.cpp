// Launches cap_choices and count_dropped.
#include "cuda/capacity.hpp"

#include "device_op.hpp"

namespace prun::cuda {
namespace {

CapacityShape shape_of(const Tensor& index, std::int64_t experts, std::int64_t most) {
  return {index.dim[0], index.dim[1], index.dim[2], experts, most};
}

template <class C>
void cap_choices(const KernelArgs& args, const KernelContext& context) {
  cuda::cap_choices<C>(data<const std::int32_t>(args, 0), data<const C>(args, 1),
                       data<const std::int32_t>(args, 3), data<std::int32_t>(args, 2),
                       shape_of(args.operands[0], args.attrs[1].i, args.attrs[0].i), args.workspace,
                       stream_of(context));
}

void count_dropped(const KernelArgs& args, const KernelContext& context) {
  cuda::count_dropped(data<const std::int32_t>(args, 0), data<const std::int32_t>(args, 1),
                      data<double>(args, 2) + args.layer, shape_of(args.operands[0], 0, 0),
                      stream_of(context));
}

Kernel select_cap_choices(const OpShape& s) {
  if (!have_type(s, DType::i32, {0, 2, 3})) return nullptr;
  const DType type = s.operand[1].present ? s.operand[1].dtype : DType::f32;
  return type == DType::f64 ? cap_choices<double> : type == DType::f32 ? cap_choices<float> : nullptr;
}

Kernel select_count_dropped(const OpShape& s) {
  return have_type(s, DType::i32, {0, 1}) && s.operand[2].dtype == DType::f64 ? count_dropped : nullptr;
}

std::int64_t cap_room(const OpShape& s, std::int32_t) {
  const Dim* const dims = s.operand[0].dims;
  return cuda::cap_workspace({dims[0].extent, dims[1].extent, dims[2].extent, s.attrs[1].i, s.attrs[0].i});
}

}  // namespace

std::vector<DeviceOp> capacity_ops(const OpChoices&) {
  return {{{"cap_choices", select_cap_choices, cap_room}}, {{"count_dropped", select_count_dropped}}};
}

}  // namespace prun::cuda
