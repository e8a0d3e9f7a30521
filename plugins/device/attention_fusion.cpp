#include "attention_fusion.hpp"

#include <algorithm>
#include <vector>

#include "prun/lowering.hpp"

namespace prun {
namespace {

class AttentionFusion {
 public:
  explicit AttentionFusion(const Segment& segment)
      : segment_(segment), program_(segment.program()), uses_(segment) {}

  void run() const {
    for (const Id split : splits()) fuse(split);
  }

 private:
  using Ids = std::vector<Id>;

  bool is(Id op, std::string_view kind) const { return program_.op(op).kind.view() == kind; }

  Ids splits() const {
    Ids found;
    for (int kind = 0; kind < function_kinds; ++kind)
      for (const Id op : segment_.operations(static_cast<FunctionKind>(kind)))
        if (is(op, "split_heads")) found.push_back(op);
    return found;
  }

  Ids operands(Id op) const {
    const Array<Id> all = program_.op(op).operands;
    return {all.begin(), all.end()};
  }

  static bool lists(const Ids& all, std::size_t first, const Ids& values) {
    return all.size() >= first + values.size() &&
           std::equal(values.begin(), values.end(), all.begin() + static_cast<std::ptrdiff_t>(first));
  }

  // Returns the ops that read each value once; none where an op reads fewer of them or a value is handed on.
  Ids common_readers(const Ids& values) const {
    const Ids readers = uses_.readers(values[0]);
    const bool alike = std::all_of(values.begin(), values.end(), [&](Id value) {
      return uses_.readers(value) == readers && !uses_.handed_on(value);
    });
    return alike ? readers : Ids();
  }

  // Returns the join_heads that alone reads what an attention_grad writes, or `none` where there is no such
  // op.
  Id join_of(Id grad) const {
    const Ids all = operands(grad), gradients(all.begin() + 6, all.begin() + 9);
    const Ids readers = common_readers(gradients);
    const bool joined = readers.size() == 1 && is(readers[0], "join_heads") &&
                        program_.op(readers[0]).function == program_.op(grad).function &&
                        lists(operands(readers[0]), 0, gradients);
    return joined ? readers[0] : none;
  }

  bool fits(Id reader, const Ids& apart) const {
    if (!is(reader, "attention") && !is(reader, "attention_grad")) return false;
    if (program_.attr(reader, "p") != 0) return false;  // packed attention drops nothing
    if (is(reader, "attention")) return lists(operands(reader), 0, apart);
    return lists(operands(reader), 1, apart) && join_of(reader) != none;
  }

  void fuse(Id split) const {
    const Ids all = operands(split), apart(all.begin() + 1, all.end());
    const Ids readers = common_readers(apart);
    const auto fits_all = [&](Id reader) { return fits(reader, apart); };
    if (readers.empty() || !std::all_of(readers.begin(), readers.end(), fits_all)) return;
    for (const Id reader : readers) rewrite(reader, all[0]);
    program_.erase(split);
  }

  void rewrite(Id reader, Id x) const {
    const Ids from = operands(reader);
    const AttrValue causal{"causal", program_.attr(reader, "causal")},
        window{"window", program_.attr(reader, "window")},
        softcap{"softcap", program_.attr(reader, "softcap")};
    if (is(reader, "attention")) {
      program_.replace_op(reader, "attention_packed", {x, from[3], from[4], from[5], from[6]},
                          {causal, window, softcap});
      return;
    }
    const Id join = join_of(reader), dx = operands(join).back();
    program_.replace_op(join, "attention_packed_grad", {from[0], x, from[4], from[5], dx, from[9]},
                        {causal, window, softcap});
    program_.erase(reader);
  }

  const Segment& segment_;
  ProgramRef program_;
  Uses uses_;
};

}  // namespace

void fuse_packed_attention(ProgramRef program) {
  for (const Segment& segment : program.segments()) AttentionFusion(segment).run();
}

}  // namespace prun
