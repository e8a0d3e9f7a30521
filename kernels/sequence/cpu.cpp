// Implements ops on sequences in another order (prun/sequence_order.hpp): the position at each place, and the
// way there and back for values of any type with rows by position.
#include <cstring>
#include <vector>

#include "cpu/isa.hpp"
#include "prun/op.hpp"
#include "prun/ops/sequence.hpp"
#include "prun/sequence_order.hpp"

namespace prun::cpu::PRUN_ISA {

std::vector<KernelDef> sequence_kernels();

namespace {

using Index = std::int64_t;

template <class Op>
SequenceOrder order_of(const ArgsOf<Op>& op) {
  return {op.integer("chunk"), op.integer("chunks")};
}

void positions(const KernelArgs& args, const KernelContext&) {
  const ArgsOf<ops::Positions> op(args);
  const Tensor& result = op["positions"];
  const SequenceOrder order = order_of(op);
  for (Index i = 0; i < result.dim[0]; ++i)
    result.as<std::int32_t>()[i] = static_cast<std::int32_t>(order.position(result.start[0] + i));
}

// Calls body(row by place, row by position) for all rows of all samples.
template <class Op, class Body>
void for_rows(const ArgsOf<Op>& op, const KernelContext& context, const Body& body) {
  constexpr Index grain = 64;
  const Tensor& x = op["x"];
  const SequenceOrder order = order_of(op);
  const Index seq = x.dim[1];
  parallel_ranges(*context.workers, x.dim[0] * seq, grain, [&](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) body(row, row / seq * seq + order.position(row % seq));
  });
}

template <class Op, bool back>
void reorder(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<Op> op(args);
  const Tensor &x = op["x"], &y = op["y"];
  const Index bytes = x.inner(x.rank - 2) * size_of(x.dtype);
  for_rows(op, context, [&](Index place, Index position) {
    std::memcpy(y.as<char>() + (back ? place : position) * bytes,
                x.as<const char>() + (back ? position : place) * bytes, static_cast<std::size_t>(bytes));
  });
}

// Calls body(piece's run, whole's run) for [lead.., d, rest..], of which every `pieces`-th index is taken or
// put.
template <class Body>
void for_runs(const Tensor& piece, Index along, Index number, Index pieces, const KernelContext& context,
              const Body& body) {
  const auto dim = static_cast<int>(along);
  const Index runs = piece.outer(piece.rank - dim - 1),
              bytes = piece.inner(piece.rank - dim - 1) * size_of(piece.dtype);
  parallel_ranges(*context.workers, runs, 16, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i)
      body(i * bytes, (i * pieces + number) * bytes, static_cast<std::size_t>(bytes));
  });
}

void take_piece(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::TakePiece> op(args);
  const Tensor &x = op["x"], &y = op["y"];
  for_runs(y, op.integer("dim"), op.integer("piece"), op.integer("pieces"), context,
           [&](Index piece, Index whole, std::size_t bytes) {
             std::memcpy(y.as<char>() + piece, x.as<const char>() + whole, bytes);
           });
}

void join_pieces(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::JoinPieces> op(args);
  const Tensor& y = op["y"];
  Index pieces = 0;
  while (pieces < 8 && args.operands[op.at("x0") + pieces].data) ++pieces;
  for (Index i = 0; i < pieces; ++i) {
    const Tensor& x = args.operands[op.at("x0") + i];
    for_runs(x, op.integer("dim"), i, pieces, context, [&](Index piece, Index whole, std::size_t bytes) {
      std::memcpy(y.as<char>() + whole, x.as<const char>() + piece, bytes);
    });
  }
}

template <Kernel K>
Kernel select_any(const OpShape&) {
  return K;
}

}  // namespace

std::vector<KernelDef> sequence_kernels() {
  return {{ops::Positions::kind, select_any<positions>},
          {ops::AsContext::kind, select_any<reorder<ops::AsContext, false>>},
          {ops::AsSeq::kind, select_any<reorder<ops::AsSeq, true>>},
          {ops::TakePiece::kind, select_any<take_piece>},
          {ops::JoinPieces::kind, select_any<join_pieces>}};
}

}  // namespace prun::cpu::PRUN_ISA
