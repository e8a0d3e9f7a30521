// Launches ops on sequences in another order (prun/sequence_order.hpp): the position at each place, and the
// way there and back for values with rows by position.
#include "cuda/sequence.hpp"

#include "cuda/collective.hpp"
#include "cuda/memory.hpp"
#include "device_op.hpp"

namespace prun::cuda {
namespace {

void positions(const KernelArgs& args, const KernelContext& context) {
  const Tensor& result = args.operands[1];
  cuda::positions(data<std::int32_t>(args, 1), result.start[0], result.dim[0],
                  {args.attrs[0].i, args.attrs[1].i}, stream_of(context));
}

template <bool back>
void reorder(const KernelArgs& args, const KernelContext& context) {
  const Tensor& x = args.operands[0];
  const std::int64_t chunks = std::max<std::int64_t>(1, args.attrs[1].i),
                     bytes = x.elements() * size_of(x.dtype);
  reorder_chunks(x.data, args.operands[1].data, x.dim[0], chunks, bytes / (x.dim[0] * chunks), back,
                 stream_of(context));
}

struct Runs {
  std::int64_t count, bytes;
};

// Returns the runs of a piece, along the dimension that it is cut on.
Runs runs_of(const Tensor& piece, const KernelArgs& args) {
  const int inner = piece.rank - static_cast<int>(args.attrs[0].i) - 1;
  return {piece.outer(inner), piece.inner(inner) * size_of(piece.dtype)};
}

void take_piece(const KernelArgs& args, const KernelContext& context) {
  const Runs runs = runs_of(args.operands[1], args);
  take(args.operands[0].data, args.operands[1].data, runs.count, args.attrs[2].i * runs.bytes,
       args.attrs[1].i * runs.bytes, runs.bytes, stream_of(context));
}

void join_pieces(const KernelArgs& args, const KernelContext& context) {
  std::int64_t pieces = 0;
  while (pieces < 8 && args.operands[pieces].data) ++pieces;
  for (std::int64_t i = 0; i < pieces; ++i) {
    const Runs runs = runs_of(args.operands[i], args);
    put(args.operands[i].data, args.operands[8].data, runs.count, pieces * runs.bytes, i * runs.bytes,
        runs.bytes, stream_of(context));
  }
}

template <Kernel kernel>
Kernel select_always(const OpShape&) {
  return kernel;
}

}  // namespace

std::vector<DeviceOp> sequence_ops(const OpChoices&) {
  return {{{"positions", select_always<positions>}},
          {{"as_context", select_always<reorder<false>>}},
          {{"as_seq", select_always<reorder<true>>}},
          {{"take_piece", select_always<take_piece>}},
          {{"join_pieces", select_always<join_pieces>}}};
}

}  // namespace prun::cuda
