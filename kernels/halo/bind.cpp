// Launches what brings chunks of a sequence the positions in front of them.
#include "halo/cuda.hpp"

#include "device_op.hpp"

namespace prun::cuda {
namespace {

// Makes the copies for chunks of x, which has their own rows alone.
HaloCopies copies_of(const HaloChunks& chunks, const Tensor& x) {
  HaloCopies copies{chunks, x.dim[0], x.inner(x.rank - 2) * size_of(x.dtype)};
  copies.count = x.dim[1] / chunks.rows;
  return copies;
}

void halo_tails(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::HaloTails> op(args);
  cuda::halo_tails(op["x"].data, op["tails"].data, copies_of(own_chunks(op), op["x"]), stream_of(context));
}

void join_halo(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::JoinHalo> op(args);
  cuda::join_halo(op["x"].data, op["halo"].data, op["y"].data, copies_of(all_chunks(op), op["x"]),
                  stream_of(context));
}

void part_halo(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::PartHalo> op(args);
  cuda::part_halo(op["y"].data, op["x"].data, op["halo"].data, copies_of(own_chunks(op), op["x"]),
                  stream_of(context));
}

template <class T>
void add_tails(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::AddTails> op(args);
  cuda::add_tails(op["x"].as<const T>(), op["tails"].as<const T>(), op["own"].as<const T>(), op["y"].as<T>(),
                  copies_of(all_chunks(op), op["x"]), stream_of(context));
}

template <Kernel kernel, class Op>
Kernel select_moves(const OpShape& shape) {
  return has_chunks(ShapeOf<Op>(shape)) ? kernel : nullptr;
}

Kernel select_add(const OpShape& shape) {
  const ShapeOf<ops::AddTails> s(shape);
  if (!same_type(s, {"x", "tails", "own"}) || !has_chunks(s)) return nullptr;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return add_tails<T>; });
}

}  // namespace

std::vector<DeviceOp> halo_ops(const OpChoices&) {
  return {{{ops::HaloTails::kind, select_moves<halo_tails, ops::HaloTails>}},
          {{ops::JoinHalo::kind, select_moves<join_halo, ops::JoinHalo>}},
          {{ops::PartHalo::kind, select_moves<part_halo, ops::PartHalo>}},
          {{ops::AddTails::kind, select_add}}};
}

}  // namespace prun::cuda
