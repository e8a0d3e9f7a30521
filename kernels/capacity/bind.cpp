// Launches cap_choices and count_dropped.
#include "capacity/cuda.hpp"

#include "device_op.hpp"
#include "prun/ops/capacity.hpp"

namespace prun::cuda {
namespace {

CapacityShape shape_of(const Tensor& index, std::int64_t experts, std::int64_t most) {
  return {index.dim[0], index.dim[1], index.dim[2], experts, most};
}

template <class C>
void cap_choices(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::CapChoices> op(args);
  cuda::cap_choices<C>(op["index"].as<const std::int32_t>(), op["weight"].as<const C>(),
                       op["positions"].as<const std::int32_t>(), op["kept"].as<std::int32_t>(),
                       shape_of(op["index"], op.integer("experts"), op.integer("most")), args.workspace,
                       stream_of(context));
}

void count_dropped(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::CountDropped> op(args);
  cuda::count_dropped(op["index"].as<const std::int32_t>(), op["targets"].as<const std::int32_t>(),
                      op["dropped"].as<double>() + args.layer, shape_of(op["index"], 0, 0),
                      stream_of(context));
}

Kernel select_cap_choices(const OpShape& shape) {
  const ShapeOf<ops::CapChoices> s(shape);
  if (!have_type(s, DType::i32, {"index", "kept", "positions"})) return nullptr;
  const DType type = s["weight"].present ? s["weight"].dtype : DType::f32;
  return type == DType::f64 ? cap_choices<double> : type == DType::f32 ? cap_choices<float> : nullptr;
}

Kernel select_count_dropped(const OpShape& shape) {
  const ShapeOf<ops::CountDropped> s(shape);
  return have_type(s, DType::i32, {"index", "targets"}) && s["dropped"].dtype == DType::f64 ? count_dropped
                                                                                            : nullptr;
}

std::int64_t cap_room(const OpShape& shape, std::int32_t) {
  const ShapeOf<ops::CapChoices> s(shape);
  const Dim* const dims = s["index"].dims;
  return cuda::cap_workspace(
      {dims[0].extent, dims[1].extent, dims[2].extent, s.integer("experts"), s.integer("most")});
}

}  // namespace

std::vector<DeviceOp> capacity_ops(const OpChoices&) {
  return {{{ops::CapChoices::kind, select_cap_choices, cap_room}},
          {{ops::CountDropped::kind, select_count_dropped}}};
}

}  // namespace prun::cuda
