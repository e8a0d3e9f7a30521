// Launches what brings chunks of a sequence the positions in front of them.
#include "cuda/halo.hpp"

#include "device_op.hpp"

namespace prun::cuda {
namespace {

// Makes the chunks of x, which has their own rows alone. Where no chunk looks for another one, attributes end
// with the reach.
HaloChunks chunks_of(const KernelArgs& args, const Tensor& x, bool all) {
  const std::int64_t rows = args.attrs[0].i;
  HaloChunks c{x.dim[0], x.dim[1] / rows, rows, args.attrs[1].i, x.inner(x.rank - 2) * size_of(x.dtype)};
  if (!all) return c;
  c.distance = args.attrs[2].i, c.parts = args.attrs[3].i, c.chunks = args.attrs[4].i;
  c.first = x.start[1] / rows;
  return c;
}

void halo_tails(const KernelArgs& args, const KernelContext& context) {
  const Tensor* o = args.operands;
  cuda::halo_tails(o[0].data, o[1].data, chunks_of(args, o[0], false), stream_of(context));
}

void join_halo(const KernelArgs& args, const KernelContext& context) {
  const Tensor* o = args.operands;
  cuda::join_halo(o[0].data, o[1].data, o[2].data, chunks_of(args, o[0], true), stream_of(context));
}

void part_halo(const KernelArgs& args, const KernelContext& context) {
  const Tensor* o = args.operands;
  cuda::part_halo(o[0].data, o[1].data, o[2].data, chunks_of(args, o[1], false), stream_of(context));
}

template <class T>
void add_tails(const KernelArgs& args, const KernelContext& context) {
  cuda::add_tails(data<const T>(args, 0), data<const T>(args, 1), data<const T>(args, 2), data<T>(args, 3),
                  chunks_of(args, args.operands[0], true), stream_of(context));
}

// Says whether a rank has whole chunks.
bool has_chunks(const OpShape& s, int x) { return s.operand[x].dims[1].extent % s.attrs[0].i == 0; }

template <Kernel kernel, int x>
Kernel select_moves(const OpShape& s) {
  return has_chunks(s, x) ? kernel : nullptr;
}

Kernel select_add(const OpShape& s) {
  if (!same_type(s, {0, 1, 2}) || !has_chunks(s, 0)) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return add_tails<T>; });
}

}  // namespace

std::vector<DeviceOp> halo_ops(const OpChoices&) {
  return {{{"halo_tails", select_moves<halo_tails, 0>}},
          {{"join_halo", select_moves<join_halo, 0>}},
          {{"part_halo", select_moves<part_halo, 1>}},
          {{"add_tails", select_add}}};
}

}  // namespace prun::cuda
