#include "placement/direct_exchanges.hpp"

#include <map>

namespace prun {
namespace {

// A rank sends a piece of this size on its own in less time than it takes to copy it.
constexpr std::int64_t least_bytes = std::int64_t{1} << 20;

class Rewriter {
 public:
  explicit Rewriter(Program& program) : program_(program) {}

  void run(Id segment) {
    std::map<Id, std::vector<Id>> users;  // users of a value: ops, the one that writes it first
    for (const std::vector<Id>& function : program_.segment(segment).functions)
      for (const Id op : function)
        for (const Id value : program_.op(op).operands)
          if (value != none) users[value].push_back(op);
    std::erase_if(users, [&](const auto& entry) { return !is_between(entry.second); });
    for (const auto& [blocks, ops] : users) join(blocks, ops[0], ops[1]);
  }

 private:
  // Says whether a value that these ops use is only the blocks of an exchange.
  bool is_between(const std::vector<Id>& ops) const {
    if (ops.size() != 2) return false;
    const Op &writer = program_.op(ops[0]), &reader = program_.op(ops[1]);
    const bool gathers = writer.kind() == "all_gather" && reader.kind() == "unblock";
    const bool scatters = writer.kind() == "block" &&
                          (reader.kind() == "reduce_scatter" || reader.kind() == "reduce_scatter_max");
    if ((!gathers && !scatters) || writer.function != reader.function) return false;
    return lies_well(gathers ? writer.operands[0] : reader.operands[1],
                     static_cast<std::size_t>(program_.attr(ops[0], "dim")));
  }

  void join(Id blocks, Id writer, Id reader) {
    const Op from = program_.op(writer), to = program_.op(reader);
    const Id exchange = from.exchange() ? writer : reader;
    const AttrValue attrs[] = {{"axis", program_.attr(exchange, "axis")},
                               {"dim", program_.attr(exchange, "dim")},
                               {"parts", program_.attr(exchange, "parts")},
                               {"direct", 1}};
    program_.add_op(from.segment, from.function, Part::input, program_.op(exchange).kind(),
                    {from.operands[0], to.operands[1]}, attrs, exchange);
    program_.erase_op(writer);
    program_.erase_op(reader);
    program_.forget_value(blocks);
  }

  // Says whether the blocks lie well, judged by the part of one rank.
  bool lies_well(Id part, std::size_t dim) const {
    const std::vector<Dim> dims = program_.local_dims(part);
    std::int64_t pieces = 1;
    for (std::size_t i = 0; i < dim; ++i) pieces *= dims[i].extent;
    return pieces == 1 || program_.local_bytes(part) >= pieces * least_bytes;
  }

  Program& program_;
};

}  // namespace

void exchange_directly(Program& program) {
  for (Id segment = 0; segment < program.segment_count(); ++segment) Rewriter(program).run(segment);
}

}  // namespace prun
