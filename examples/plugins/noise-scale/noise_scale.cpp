// A strategy that measures what the gradient noise scale is computed from (McCandlish et al. 2018): the
// squared norm of each rank's own gradient, summed over the ranks of an axis, and that of the sum of their
// gradients. Each segment has a sum of a step, "block.noise", with both numbers, `small` and `big`, for each
// layer; observers get it. Add up each over segments and layers. With N ranks and B sequences a step, the
// noise scale in sequences is S / G, after both have been averaged over steps:
//   G = (N big - N small) / (N - 1),  S = B (N small - big) / (N - 1)
#include <optional>
#include <string>
#include <vector>

#include "prun/plugin.hpp"

namespace {

using namespace prun;

class NoiseScale final : public Strategy {
 public:
  explicit NoiseScale(const Options& options) : axis_(options.text("axis")) {}

  // Sums of a step are declared before placement, which sums them over ranks and stages.
  void apply(Phase phase, ProgramRef program) override {
    if (phase == Phase::shard) return declare(program);
    for (const Gradient& gradient : gradients_of(program)) measure(program, gradient);
  }

 private:
  struct Gradient {
    Id id = none, segment = none;
    std::vector<Lies> lies;
  };

  void declare(ProgramRef program) {
    sums_.clear();
    for (const Segment& segment : program.segments()) {
      bool trains = false;
      for (const Id id : segment.values()) trains |= program.value(id).role == Role::gradient;
      sums_.push_back(trains ? segment.tally("noise", {{"squares", 2}}) : none);
    }
  }

  std::vector<Gradient> gradients_of(ProgramRef program) const {
    std::vector<Gradient> list;
    for (const ProgramView::Value& value : program.view().values)
      if (value.info.role == Role::gradient && sums_[value.info.segment] != none)
        list.push_back({value.id, value.info.segment, {value.lies.begin(), value.lies.end()}});
    return list;
  }

  // Squares what each rank has just before the ranks sum it, and the sum just behind that.
  void measure(ProgramRef program, const Gradient& gradient) const {
    const Segment segment(program, gradient.segment);
    const ValueInfo info = program.value(gradient.id);
    std::vector<Lies> own;
    std::vector<std::string> over, over_of_sum;
    bool others = false;  // whether further axes sum it
    for (const Lies& lies : gradient.lies) {
      const bool mine = lies.axis.view() == axis_, summed = lies.kind == PlacementKind::partial;
      others |= summed && !mine;
      if (lies.kind == PlacementKind::replicated || (summed && !mine)) continue;
      own.push_back({lies.axis, mine ? PlacementKind::varying : PlacementKind::partial});
      over.emplace_back(lies.axis.view());
      if (!mine) over_of_sum.emplace_back(lies.axis.view());
    }
    const std::string name = std::string(info.name.view()) + ".square";
    const Id square = segment.state({.name = name,
                                     .typed = true,
                                     .dtype = DType::f64,
                                     .lies = {own.data(), own.size()},
                                     .compared = false,
                                     .on_resize = OnResize::anew});
    const Id sum = others ? sum_put_last(segment, gradient.id) : first_that_changes(segment, gradient.id);
    segment.insert_on(FunctionKind::reduce, sum, "square_norm", {gradient.id, square});
    add(segment, sum, square, over, 0);
    const Id whole = segment.insert(FunctionKind::reduce, none, "square_norm", {gradient.id}, 1)[0];
    add(segment, none, whole, over_of_sum, 1);
  }

  // Returns the op with which the sum of a gradient begins; none: nobody sums it.
  static Id first_that_changes(const Segment& segment, Id gradient) {
    for (const Id op : segment.operations(FunctionKind::reduce))
      for (const Id operand : segment.program().op(op).operands)
        if (operand == gradient) return op;
    return none;
  }

  // Puts the sum over the axis behind those over others: only then has each rank the gradient of its own
  // batch. Returns its op; none: nobody sums it over the axis.
  Id sum_put_last(const Segment& segment, Id gradient) const {
    const double axis = segment.program().axis(axis_).number;
    for (const Id op : segment.operations(FunctionKind::reduce)) {
      const OpInfo info = segment.program().op(op);
      if (info.operands[0] != gradient) continue;
      if (!info.def->exchange)
        throw_error(ErrorCode::unsupported,
                    "several axes sum gradients, in another type than they are kept in; leave "
                    "precision.reduce out");
      if (segment.program().attr(op, "axis") != axis) continue;
      segment.program().erase(op);
      segment.insert(FunctionKind::reduce, none, "all_reduce_update", {gradient}, 0, {{"axis", axis}});
      return segment.operations(FunctionKind::reduce).back();
    }
    return none;
  }

  // Sums over axes, and adds that to the sum of a step.
  void add(const Segment& segment, Id before, Id square, const std::vector<std::string>& axes,
           double which) const {
    for (const std::string& axis : axes)
      square = segment.insert(FunctionKind::reduce, before, "all_reduce", {square}, 1,
                              {{"axis", static_cast<double>(segment.program().axis(axis).number)}})[0];
    segment.insert(FunctionKind::reduce, before, "add_to_row", {square, sums_[segment.id()]}, 0,
                   {{"column", which}});
  }

  std::string axis_;
  std::vector<Id> sums_;  // by segment
};

}  // namespace

PRUN_PLUGIN(strategy, NoiseScale, "noise-scale", "1.0.0", "Measures the gradient noise scale",
            "phase=shard,placed; only=training; axis=batch; tune=exact",
            "axis | string | dp | | Mesh axis whose ranks have different batches\n");
