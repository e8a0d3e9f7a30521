// A strategy: error feedback (Seide et al. 2014). Each rank rounds its gradient to a coarse grid before the
// ranks sum it, and adds what that leaves over to its next gradient. With g_i the gradient and e_i the rest
// of rank i:
//   q_i = on grid(g_i + e_i),  e_i = g_i + e_i - q_i,  gradient = sum over i of q_i
// Ranks round what each of them has, so the result depends on how many they are: the rest varies.
#include <algorithm>
#include <string>
#include <vector>

#include "prun/plugin.hpp"

namespace {

using namespace prun;

class ErrorFeedback final : public Strategy {
 public:
  explicit ErrorFeedback(const Options& options)
      : axis_(options.text("axis")), step_(options.number("step")) {}

  void apply(Phase, ProgramRef program) override {
    const ProgramView view = program.view();
    std::vector<Id> gradients;
    for (const ProgramView::Value& value : view.values)
      if (value.info.role == Role::gradient && is_summed(value)) gradients.push_back(value.id);
    for (const Id gradient : gradients) round(program, gradient);
  }

 private:
  bool is_summed(const ProgramView::Value& gradient) const {
    return std::any_of(gradient.lies.begin(), gradient.lies.end(), [&](const Lies& lies) {
      return lies.kind == PlacementKind::partial && lies.axis.view() == axis_;
    });
  }

  void round(ProgramRef program, Id gradient) const {
    const ValueInfo info = program.value(gradient);
    const Segment segment(program, info.segment);
    const Id behind = take_sum_out(segment, gradient);
    const std::string name = std::string(info.name.view()) + ".rest";
    const Lies own{axis_, PlacementKind::varying};
    const Id rest = segment.state({.name = name,
                                   .dims = {info.dims, static_cast<std::uint64_t>(info.rank)},
                                   .typed = true,
                                   .dtype = info.dtype,
                                   .like = gradient,
                                   .lies = {&own, 1},
                                   .on_resize = OnResize::anew});
    const auto insert = [&](const char* kind, std::initializer_list<Id> inputs,
                            std::initializer_list<AttrValue> attrs) {
      return segment.insert(FunctionKind::reduce, behind, kind, inputs, 1, attrs)[0];
    };
    const Id whole = insert("add", {gradient, rest}, {});
    const Id rounded = insert("to_grid", {whole}, {{"step", step_}});
    segment.insert(FunctionKind::reduce, behind, "keep_rest", {whole, rounded, rest}, 0);
    const Id summed =
        insert("all_reduce", {rounded}, {{"axis", static_cast<double>(program.axis(axis_).number)}});
    segment.insert_on(FunctionKind::reduce, behind, "copy", {summed, gradient});
  }

  // Takes out the op that sums the gradient over the axis. Returns the op in front of which all other axes
  // have summed it; none: the end.
  Id take_sum_out(const Segment& segment, Id gradient) const {
    const std::vector<Id> ops = segment.operations(FunctionKind::reduce);
    Id sum = none, behind = none;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const OpInfo info = segment.program().op(ops[i]);
      if (!info.def->exchange || info.operands[0] != gradient) continue;
      behind = i + 1 < ops.size() ? ops[i + 1] : none;
      if (segment.program().attr(ops[i], "axis") == segment.program().axis(axis_).number) sum = ops[i];
    }
    if (sum == none)
      throw_error(ErrorCode::unsupported,
                  "gradients are summed in another type than they are kept in; leave precision.reduce out");
    segment.program().erase(sum);
    return behind;
  }

  std::string axis_;
  double step_;
};

}  // namespace

PRUN_PLUGIN(strategy, ErrorFeedback, "error-feedback", "1.0.0",
            "Sums gradients rounded to a grid, with error feedback",
            "phase=placed; only=training; axis=batch; conflicts=zero",
            // NOLINTNEXTLINE(bugprone-suspicious-missing-comma): each option is one text on one line.
            "axis | string | dp     |      | Mesh axis over which gradients are summed\n"
            "step | float  | 0.0078125 | 0.. | Spacing of the grid that gradients are rounded to\n");
