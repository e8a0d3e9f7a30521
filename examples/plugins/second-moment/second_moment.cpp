// A strategy of ZeRO's first kind, with the second moment alone in parts: each rank of an axis keeps and
// updates its part of Adam's v, all gather it, and each takes the step. The first moment stays whole, so that
// what travels is one number for each weight, and none of the weights themselves does.
#include <optional>
#include <string>
#include <vector>

#include "prun/plugin.hpp"

namespace {

using namespace prun;

class SecondMoment final : public Strategy {
 public:
  explicit SecondMoment(const Options& options) : axis_(options.text("axis")) {}

  void apply(Phase, ProgramRef program) override {
    const AxisInfo axis = program.axis(axis_);
    const std::vector<Cut> cuts = cuts_of(program, axis.extent);
    if (cuts.empty())
      throw_error(ErrorCode::bad_input, "no update is one of 'adamw' whose second moment axis '", axis_,
                  "' divides; choose optimizer adamw, or other ranks");
    for (const Cut& cut : cuts) keep_part(program, cut, axis);
  }

 private:
  struct Cut {
    Id op = none;
    std::int32_t dim = 0;  // number of the dimension that the ranks share out
  };

  std::vector<Cut> cuts_of(ProgramRef program, std::int64_t ranks) const {
    const ProgramView view = program.view();
    std::vector<Cut> cuts;
    for (const ProgramView::Op& op : view.ops) {
      if (op.info.function != FunctionKind::update || op.info.kind.view() != "adamw") continue;
      const ProgramView::Value& moment = view.values.data[op.info.operands.data[4]];
      if (const std::optional<std::int32_t> dim = free_dim(moment, ranks)) cuts.push_back({op.id, *dim});
    }
    return cuts;
  }

  // Returns a dimension that no axis splits yet and that the ranks divide.
  static std::optional<std::int32_t> free_dim(const ProgramView::Value& moment, std::int64_t ranks) {
    for (std::int32_t d = 0; d < moment.info.rank; ++d) {
      const Dim& dim = moment.info.dims[d];
      bool free = dim.extent % ranks == 0;
      for (const Lies& lies : moment.lies)
        free &= lies.kind != PlacementKind::sharded || lies.dim != dim.name;
      if (free) return d;
    }
    return {};
  }

  void keep_part(ProgramRef program, const Cut& cut, AxisInfo axis) const {
    const OpInfo info = program.op(cut.op);
    const Segment segment(program, info.segment);
    const std::vector<Id> o(info.operands.begin(), info.operands.end());
    const Id gradient = o[2], m = o[3], v = o[4], lr = o[5], step = o[6], clip = o[7], keep = o[8];
    const AttrValue over{"axis", static_cast<double>(axis.number)}, dim{"dim", static_cast<double>(cut.dim)},
        parts{"parts", static_cast<double>(axis.extent)};
    program.place_over(v, {axis_, PlacementKind::sharded, program.value(v).dims[cut.dim].name});
    const bool alone = axis.extent == 1;
    const Id part =
        alone ? gradient
              : segment.insert(FunctionKind::update, cut.op, "slice", {gradient}, 1, {over, dim, parts})[0];
    segment.insert(FunctionKind::update, cut.op, "second_moment", {part, v, clip, keep}, 0,
                   {{"beta2", program.attr(cut.op, "beta2")}});
    const Id all = alone ? v
                         : segment.insert(FunctionKind::update, cut.op, "all_gather", {v}, 1,
                                          {over, dim, parts, {"direct", 1}})[0];
    std::vector<AttrValue> attrs;
    for (const char* name : {"beta1", "beta2", "eps", "weight_decay", "lr_scale"})
      attrs.push_back({name, program.attr(cut.op, name)});
    program.replace_op(cut.op, "adam_step", {o[0], o[1], gradient, m, all, lr, step, clip, keep},
                       {attrs[0], attrs[1], attrs[2], attrs[3], attrs[4]});
  }

  std::string axis_;
};

}  // namespace

PRUN_PLUGIN(strategy, SecondMoment, "second-moment", "1.0.0", "Shards the second moment of Adam",
            "phase=state; only=training; axis=batch; conflicts=zero",
            "axis | string | dp | | Mesh axis to shard the second moment over\n");
