#include "placement/split_head.hpp"

#include <initializer_list>

namespace prun {
namespace {

// Puts the ops in front of the one they stand in for.
class HeadSplit {
 public:
  HeadSplit(Program& program, Id head, const std::vector<AxisId>& axes)
      : program_(program), head_(head), segment_(program.op(head).segment), axes_(axes) {}

  void run() {
    const std::vector<Id> operands = program_.op(head_).operands;
    const Id x = operands[0], weight = operands[1], targets = operands[2], scale = operands[3],
             loss = operands[4], dweight = operands[5], dx = operands[6];
    const std::vector<Id> scanned =
        create("lm_head_scan", {x, weight, targets}, {{"vocab", static_cast<double>(rows(weight))}});
    const Id max = scanned[0], sum = scanned[1], hit = scanned[2];
    Id gmax = max;
    for (const AxisId axis : axes_)
      gmax = create("all_reduce_max", {gmax}, {axis_attr(axis)})[0];
    const Id scaled = create("lm_head_rescale", {max, gmax, sum})[0];
    const Id lse = create("lm_head_loss", {gmax, scaled, hit, targets, loss})[0];
    program_.add_op(segment_, FunctionKind::forward, Part::input, "lm_head_grad",
                    {x, weight, targets, lse, scale, dweight, dx}, {}, head_);
    program_.erase_op(head_);
  }

 private:
  std::int64_t rows(Id weight) const { return program_.value(weight).dims[0].extent; }

  std::vector<Id> create(const char* kind, std::initializer_list<Id> inputs,
                         std::initializer_list<AttrValue> attrs = {}) {
    return program_.add_op_creating(segment_, FunctionKind::forward, Part::input, kind,
                                    {inputs.begin(), inputs.size()}, {attrs.begin(), attrs.size()}, head_);
  }

  Program& program_;
  Id head_, segment_;
  const std::vector<AxisId>& axes_;
};

}  // namespace

void split_head(Program& program, const std::vector<AxisId>& axes) {
  for (const AxisId axis : axes)
    PRUN_CHECK(axis < program.mesh().size(), "the mesh has no axis ", axis, " to split the LM head over");
  for (Id segment = 0; segment < program.segment_count(); ++segment) {
    const std::vector<Id> forward = program.segment(segment).ops(FunctionKind::forward);
    for (Id op : forward)
      if (program.op(op).kind() == "lm_head") HeadSplit(program, op, axes).run();
  }
}

}  // namespace prun
