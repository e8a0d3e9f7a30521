// Adds and changes ops after placement, correctly and wrongly: prun derives the placement of their results,
// and refuses those that would need a collective.
#include <string>

#include "prun/plugin.hpp"

namespace prun {
namespace {

class LateEdits final : public Strategy {
 public:
  explicit LateEdits(const Options& options) : what_(options.text("what")) {}

  void apply(Phase, ProgramRef program) override {
    for (const Segment& segment : program.segments()) {
      if (segment.info().name.view() != "block") continue;
      if (what_ == "tally") segment.tally("late", {{"all", 1}});
      if (what_ == "whole") normalize_part(segment);
      if (what_ == "summand") bend_gradient(segment, segment_value(segment, "up.weight.gradient"));
      if (what_ == "linear") cast_gradient(segment, segment_value(segment, "up.weight.gradient"));
      if (what_ == "update_sum") update_with_scaled(segment, FunctionKind::update);
      if (what_ == "update_summand") update_with_scaled(segment, FunctionKind::backward);
      if (what_ == "unsummed") leave_sum_out(segment, segment_value(segment, "up.weight.gradient"));
      if (what_ == "summed_twice") sum_again(segment, segment_value(segment, "up.weight.gradient"));
      if (what_ == "own") update_with_own(segment, segment_value(segment, "up.weight.gradient"));
      if (what_ == "again") cut_again(segment, segment_value(segment, "up.weight.m"));
      if (what_ == "fresh") ask_of_fresh(segment, segment_value(segment, "up.weight.gradient"));
    }
  }

 private:
  static Id segment_value(const Segment& segment, std::string_view name) {
    for (const Id id : segment.values())
      if (segment.program().value(id).name.view() == name) return id;
    throw_error(ErrorCode::bad_input, "there is no value '", name, "'");
  }

  // Takes a mean over all of a dimension of which a rank may have a part.
  static void normalize_part(const Segment& segment) {
    const Id gain = segment_value(segment, "up.bias");
    for (const Id id : segment.operations(FunctionKind::forward)) {
      const OpInfo op = segment.program().op(id);
      if (op.kind.view() == "gelu")
        segment.insert(FunctionKind::forward, none, "layernorm",
                       {op.operands[op.operands.size - 1], gain, gain}, 3);
    }
  }

  // Applies an op that is not linear to a partial sum, whose results do not add up to that of the sum.
  static void bend_gradient(const Segment& segment, Id gradient) {
    segment.insert(FunctionKind::backward, none, "gelu", {gradient}, 1);
  }
  static void cast_gradient(const Segment& segment, Id gradient) {
    segment.insert(FunctionKind::backward, none, "cast", {gradient}, 1,
                   {{"from", static_cast<double>(DType::f64)}, {"to", static_cast<double>(DType::f32)}});
  }

  static void leave_sum_out(const Segment& segment, Id gradient) {
    for (const Id id : segment.operations(FunctionKind::reduce))
      if (segment.program().op(id).operands.data[0] == gradient) segment.program().erase(id);
  }
  static void sum_again(const Segment& segment, Id gradient) {
    segment.insert(FunctionKind::norm, none, "all_reduce", {gradient}, 1, {{"axis", 0}});
  }

  // Keeps what each rank has, and hands that on as if it were the same on all.
  static void update_with_own(const Segment& segment, Id gradient) {
    const ValueInfo info = segment.program().value(gradient);
    const Lies lies{"dp", PlacementKind::varying};
    const Id own = segment.state(
        {.name = "own", .dims = {info.dims, 2}, .typed = true, .dtype = info.dtype, .lies = {&lies, 1}});
    segment.insert_on(FunctionKind::backward, none, "copy", {gradient, own});
    segment.insert_on(FunctionKind::norm, none, "scale", {own, gradient}, {{"factor", 1.0}});
  }
  static void cut_again(const Segment& segment, Id state) {
    segment.program().place_over(state, {"tp", PlacementKind::sharded, "ffn"});
  }
  static void ask_of_fresh(const Segment& segment, Id gradient) {
    const Id fresh = segment.insert(FunctionKind::update, none, "scale", {gradient}, 1)[0];
    segment.program().placement(fresh, "dp");
  }

  // Lets the update read another value than the gradient: in `backward`, before the reduction, each rank
  // scales a partial sum of its own.
  static void update_with_scaled(const Segment& segment, FunctionKind function) {
    const Id gradient = segment_value(segment, "up.weight.gradient");
    for (const Id update : segment.operations(FunctionKind::update)) {
      const Array<Id> operands = segment.program().op(update).operands;
      for (std::uint64_t i = 0; i < operands.size; ++i) {
        if (operands[i] != gradient) continue;
        const Id before = function == FunctionKind::update ? update : none;
        const Id scaled = segment.insert(function, before, "scale", {gradient}, 1, {{"factor", 1.0}}).front();
        return segment.program().replace_operand(update, static_cast<int>(i), scaled);
      }
    }
  }

  std::string what_;
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(strategy, prun::LateEdits, "late-edits", "0.1.0", "Edits behind placement", "phase=state",
            "what | choice | required | "
            "tally,whole,summand,linear,update_sum,update_summand,unsummed,summed_twice,own,"
            "again,fresh | What it does\n");
