#include "program/head_pieces.hpp"

#include <optional>

#include "base/require.hpp"

namespace prun {
namespace {

constexpr std::size_t most_pieces = 8;  // the most that join_pieces takes

std::optional<std::size_t> heads_of(const Program& program, Id value) {
  const std::vector<Dim>& dims = program.value(value).dims;
  for (std::size_t d = 0; d < dims.size(); ++d)
    if (dims[d].name == Name("heads")) return d;
  return {};
}

}  // namespace

void check_pieces(const Program& program, std::int64_t pieces) {
  if (pieces < 1 || pieces > static_cast<std::int64_t>(most_pieces))
    throw_error(ErrorCode::bad_input, "keys and values come in 1 to ", most_pieces, " pieces, not ", pieces);
  for (Id id = 0; id < program.value_count(); ++id)
    for (const Dim& dim : program.value(id).dims)
      if (dim.name == Name("heads") && dim.extent % pieces != 0)
        throw_error(ErrorCode::unsupported, dim.extent, " groups of heads cannot be cut into ", pieces,
                    " equal pieces; choose a divisor of them");
}

Id HeadPieces::taken(Id value, std::int64_t piece, Id before) {
  if (value == none || !heads_of(program_, value)) return value;
  const auto key = std::pair(value, piece);
  if (const auto known = taken_.find(key); known != taken_.end()) return known->second;
  const Op& op = program_.op(before);
  const AttrValue attrs[] = {{"dim", static_cast<double>(*heads_of(program_, value))},
                             {"piece", static_cast<double>(piece)},
                             {"pieces", static_cast<double>(count_)}};
  return taken_[key] = program_.add_op_creating(op.segment, op.function, op.part, "take_piece",
                                                std::span(&value, 1), attrs, before)[0];
}

Id HeadPieces::piece_like(Id value) {
  Value piece = program_.value(value);
  const std::optional<std::size_t> heads = heads_of(program_, value);
  PRUN_CHECK(heads, "'", piece.name, "' has no heads to make pieces of");
  piece.dims[*heads].extent /= count_;
  piece.name += ".piece";
  return program_.add_value(std::move(piece));
}

void HeadPieces::join(const std::vector<Id>& pieces, Id whole, const Op& op, Id before) {
  std::vector<Id> operands = pieces;
  operands.resize(most_pieces, none);
  operands.push_back(whole);
  const AttrValue dim{"dim", static_cast<double>(*heads_of(program_, whole))};
  program_.add_op(op.segment, op.function, op.part, "join_pieces", std::move(operands), std::span(&dim, 1),
                  before);
}

}  // namespace prun
