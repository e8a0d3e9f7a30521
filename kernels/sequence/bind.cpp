// Launches ops on sequences in another order (prun/sequence_order.hpp): the position at each place, and the
// way there and back for values with rows by position.
#include "sequence/cuda.hpp"

#include "collective/cuda.hpp"
#include "device_op.hpp"
#include "memory/cuda.hpp"
#include "prun/ops/sequence.hpp"

namespace prun::cuda {
namespace {

void positions(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Positions> op(args);
  const Tensor& result = op["positions"];
  cuda::positions(op["positions"].as<std::int32_t>(), result.start[0], result.dim[0],
                  {op.integer("chunk"), op.integer("chunks")}, stream_of(context));
}

template <class Op, bool back>
void reorder(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<Op> op(args);
  const Tensor& x = op["x"];
  const std::int64_t chunks = std::max<std::int64_t>(1, op.integer("chunks")),
                     bytes = x.elements() * size_of(x.dtype);
  reorder_chunks(x.data, op["y"].data, x.dim[0], chunks, bytes / (x.dim[0] * chunks), back,
                 stream_of(context));
}

struct Runs {
  std::int64_t count, bytes;
};

// Returns the runs of a piece, along the dimension that it is cut on.
Runs runs_of(const Tensor& piece, std::int64_t dim) {
  const int inner = piece.rank - static_cast<int>(dim) - 1;
  return {piece.outer(inner), piece.inner(inner) * size_of(piece.dtype)};
}

void take_piece(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::TakePiece> op(args);
  const Runs runs = runs_of(op["y"], op.integer("dim"));
  take(op["x"].data, op["y"].data, runs.count, op.integer("pieces") * runs.bytes,
       op.integer("piece") * runs.bytes, runs.bytes, stream_of(context));
}

void join_pieces(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::JoinPieces> op(args);
  std::int64_t pieces = 0;
  while (pieces < 8 && args.operands[op.at("x0") + pieces].data) ++pieces;
  for (std::int64_t i = 0; i < pieces; ++i) {
    const Runs runs = runs_of(args.operands[op.at("x0") + i], op.integer("dim"));
    put(args.operands[op.at("x0") + i].data, op["y"].data, runs.count, pieces * runs.bytes, i * runs.bytes,
        runs.bytes, stream_of(context));
  }
}

template <Kernel kernel>
Kernel select_always(const OpShape&) {
  return kernel;
}

}  // namespace

std::vector<DeviceOp> sequence_ops(const OpChoices&) {
  return {{{ops::Positions::kind, select_always<positions>}},
          {{ops::AsContext::kind, select_always<reorder<ops::AsContext, false>>}},
          {{ops::AsSeq::kind, select_always<reorder<ops::AsSeq, true>>}},
          {{ops::TakePiece::kind, select_always<take_piece>}},
          {{ops::JoinPieces::kind, select_always<join_pieces>}}};
}

}  // namespace prun::cuda
