// Launches what brings chunks of a sequence the positions in front of them.
#include "halo/cuda.hpp"

#include "device_op.hpp"
#include "prun/ops/halo.hpp"

namespace prun::cuda {
namespace {

// Makes the chunks of x, which has their own rows alone.
template <class Op>
HaloChunks own_chunks(const ArgsOf<Op>& op) {
  const Tensor& x = op["x"];
  const std::int64_t rows = op.integer("rows");
  return {x.dim[0], x.dim[1] / rows, rows, op.integer("reach"), x.inner(x.rank - 2) * size_of(x.dtype)};
}

// Does the same where a chunk looks for another one.
template <class Op>
HaloChunks all_chunks(const ArgsOf<Op>& op) {
  HaloChunks c = own_chunks(op);
  c.distance = op.integer("distance"), c.parts = op.integer("parts"), c.chunks = op.integer("chunks");
  c.first = op["x"].start[1] / c.rows;
  return c;
}

void halo_tails(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::HaloTails> op(args);
  cuda::halo_tails(op["x"].data, op["tails"].data, own_chunks(op), stream_of(context));
}

void join_halo(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::JoinHalo> op(args);
  cuda::join_halo(op["x"].data, op["halo"].data, op["y"].data, all_chunks(op), stream_of(context));
}

void part_halo(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::PartHalo> op(args);
  cuda::part_halo(op["y"].data, op["x"].data, op["halo"].data, own_chunks(op), stream_of(context));
}

template <class T>
void add_tails(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::AddTails> op(args);
  cuda::add_tails(op["x"].as<const T>(), op["tails"].as<const T>(), op["own"].as<const T>(), op["y"].as<T>(),
                  all_chunks(op), stream_of(context));
}

// Says whether a rank has whole chunks.
template <class Op>
bool has_chunks(const ShapeOf<Op>& s) {
  return s["x"].dims[1].extent % s.integer("rows") == 0;
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
