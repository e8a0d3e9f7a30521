// A strategy: DiLoCo (Douillard et al. 2023). Each rank of an axis trains parameters of its own with the
// recipe's optimizer, on its part of the batch, and nothing is summed between ranks. Every so many steps all
// come together: with N ranks whose parameters are p_i, and the outer parameters o that all started from,
//   d = o - (sum over i of p_i) / N,  v = momentum v + d,  o = o - lr (d + momentum v),  p_i = o
// The outer parameters are what the run evaluates and what its checkpoints have under the parameters' names.
#include <string>
#include <vector>

#include "prun/plugin.hpp"

namespace {

using namespace prun;

class DiLoCo final : public Strategy {
 public:
  explicit DiLoCo(const Options& options)
      : axis_(options.text("axis")),
        every_(options.integer("every")),
        lr_(options.number("lr")),
        momentum_(options.number("momentum")) {}

  void apply(Phase phase, ProgramRef program) override {
    const bool trains = program.step_context().training;
    if (phase == Phase::shard) {
      program.split("batch", axis_);
      if (trains) program.vary(axis_);
      return;
    }
    if (!trains) return;
    const AxisInfo axis = program.axis(axis_);
    if (axis.extent > 1) agree(program, axis);
    one_ = make_one(program);
    program.periodic(every_);
    const ProgramView view = program.view();
    std::vector<Trained> all;
    for (const ProgramView::Value& value : view.values)
      if (value.info.role == Role::parameter && !value.info.frozen) all.push_back(trained(view, value));
    for (const Trained& one : all) come_together(program, axis, one);
  }

 private:
  struct Trained {
    Id parameter = none;
    DType type = DType::f32;
    // The copy that its updates add to, if there is one, and otherwise itself.
    Id updated = none;
    DType updated_type = DType::f32;
  };

  static Trained trained(const ProgramView& view, const ProgramView::Value& parameter) {
    const ValueInfo& info = parameter.info;
    const std::string name = std::string(info.name.view()) + ".master";
    for (const ProgramView::Value& value : view.values) {
      if (value.info.segment != info.segment || value.info.name.view() != name) continue;
      if (value.info.dtype == DType::u16)
        throw_error(ErrorCode::unsupported,
                    "cannot average master weights that are split; set precision.master = \"fp32\"");
      return {parameter.id, info.dtype, value.id, value.info.dtype};
    }
    return {parameter.id, info.dtype, parameter.id, info.dtype};
  }

  // Each rank clips by the norm of its own gradient: N times its part of the gradient of the mean over all
  // targets. A step is kept if all these are finite, and its norm is the root of their mean square.
  void agree(ProgramRef program, AxisInfo axis) const {
    const Segment step = program.segments().front();
    const auto n = static_cast<double>(axis.extent);
    const AttrValue over{"axis", static_cast<double>(axis.number)};
    const Id decides = op_of(step, FunctionKind::finish, "clip_factor");
    const Array<Id> operands = program.op(decides).operands;
    const Id squares = operands.data[0], loss = operands.data[1], halt = operands.data[2],
             clip = operands.data[4], scale = operands.data[6];
    const auto insert = [&](const char* kind, std::initializer_list<Id> inputs, int outputs,
                            std::initializer_list<AttrValue> attrs) {
      return step.insert(FunctionKind::finish, decides, kind, inputs, outputs, attrs);
    };
    const Id own = insert("scale", {squares}, 1, {{"factor", n * n}})[0];
    const Id own_clip =
        insert("clip_factor", {own, loss, halt, scale}, 3, {{"limit", program.attr(decides, "limit")}})[1];
    const Id factor = program.runtime("clip.own");
    step.insert_on(FunctionKind::finish, decides, "scale", {own_clip, factor}, {{"factor", n}});
    const Id all = insert("all_reduce", {squares}, 1, {over})[0];
    program.replace_operand(decides, 0, insert("scale", {all}, 1, {{"factor", n}})[0]);
    const Id counts = program.runtime("non_finite");
    step.insert_on(FunctionKind::report, reader_of(step, counts), "all_reduce_update", {counts}, {over});
    for (const Segment& segment : program.segments())
      for (const Id op : segment.operations(FunctionKind::update)) {
        const Array<Id> reads = program.op(op).operands;
        for (std::uint64_t i = 0; i < reads.size; ++i)
          if (reads.data[i] == clip) program.replace_operand(op, static_cast<int>(i), factor);
      }
  }

  static Id op_of(const Segment& segment, FunctionKind function, std::string_view kind) {
    for (const Id op : segment.operations(function))
      if (segment.program().op(op).kind.view() == kind) return op;
    throw_error(ErrorCode::unsupported, "the step has no op '", std::string(kind), "'");
  }

  // Returns the op that copies a number of the step to the host, behind all that completes it.
  static Id reader_of(const Segment& step, Id number) {
    for (const Id op : step.operations(FunctionKind::report))
      if (const OpInfo info = step.program().op(op);
          info.kind.view() == "copy" && info.operands.data[0] == number)
        return op;
    throw_error(ErrorCode::unsupported, "the host does not read how many numbers are not finite");
  }

  // Makes the number 1, the factor that leaves as it is what is not to be clipped: of nothing.
  static Id make_one(ProgramRef program) {
    const Segment step = program.segments().front();
    const Id zero = program.runtime("diloco.zero"), one = program.runtime("diloco.one");
    step.insert_on(FunctionKind::finish, none, "zero", {zero});
    const Id made = step.insert(FunctionKind::finish, none, "clip_factor", {zero, zero, zero, none}, 3)[1];
    step.insert_on(FunctionKind::finish, none, "copy", {made, one});
    return one;
  }

  void come_together(ProgramRef program, AxisInfo axis, const Trained& of) const {
    const ValueInfo info = program.value(of.parameter);
    const Segment segment(program, info.segment);
    const std::string name(info.name.view());
    const Array<Dim> dims{info.dims, static_cast<std::uint64_t>(info.rank)};
    const std::string outer_name = name + ".outer", velocity_name = name + ".velocity";
    const Id outer =
        segment.state({.name = outer_name, .dims = dims, .starts_as = of.parameter, .like = of.parameter});
    const Id velocity = segment.state({.name = velocity_name, .dims = dims, .like = of.parameter});
    program.evaluate_with(of.parameter, outer);
    const auto insert = [&](const char* kind, std::initializer_list<Id> inputs,
                            std::initializer_list<AttrValue> attrs) {
      return segment.insert(FunctionKind::periodic, none, kind, inputs, 1, attrs)[0];
    };
    const DType wide = program.value(outer).dtype;
    Id sum = of.updated;
    if (of.updated_type != wide)
      sum = insert("cast", {sum}, {{"to", number_of(wide)}, {"from", number_of(of.updated_type)}});
    if (axis.extent > 1) sum = insert("all_reduce", {sum}, {{"axis", static_cast<double>(axis.number)}});
    const double share = -1.0 / static_cast<double>(axis.extent);
    const Id moved = insert("add", {outer, insert("scale", {sum}, {{"factor", share}})}, {});
    // The op keeps (1 - momentum) v, and its direction is as much smaller.
    const Id direction = insert("momentum", {outer, moved, velocity, one_, one_, none, none, none},
                                {{"now", momentum_ * momentum_}, {"later", momentum_}});
    segment.insert_on(FunctionKind::periodic, none, "sgd",
                      {outer, none, direction, none, one_, none, one_, none, none},
                      {{"lr_scale", lr_ / (1 - momentum_)}});
    write_back(segment, outer, wide, of.updated, of.updated_type);
    // An update by nothing rounds the parameter from its master copy, as each update does.
    if (of.updated != of.parameter)
      segment.insert_on(FunctionKind::periodic, none, "sgd",
                        {of.parameter, of.updated, moved, none, one_, none, one_, none, none},
                        {{"lr_scale", 0.0}});
  }

  void write_back(const Segment& segment, Id from, DType wide, Id to, DType type) const {
    if (type == wide)
      segment.insert_on(FunctionKind::periodic, none, "copy", {from, to});
    else
      segment.insert_on(FunctionKind::periodic, none, "cast", {from, to},
                        {{"to", number_of(type)}, {"from", number_of(wide)}});
  }
  static double number_of(DType type) { return static_cast<double>(type); }

  std::string axis_;
  std::int64_t every_;
  double lr_, momentum_;
  Id one_ = none;
};

}  // namespace

PRUN_PLUGIN(
    strategy, DiLoCo, "diloco", "1.0.0", "Trains separate replicas and synchronizes them now and then",
    "phase=shard,placed; splits=batch; axis=own; conflicts=zero; also=local_sgd",
    // NOLINTNEXTLINE(bugprone-suspicious-missing-comma): each option is one text on one line.
    "axis     | string | dp  |         | Mesh axis whose ranks train separate replicas\n"
    "every    | int    | 500 | 1..     | Inner steps between outer updates, which synchronize the replicas\n"
    "lr       | float  | 0.7 | 0..     | Learning rate of the outer update\n"
    "momentum | float  | 0.9 | 0..0.999 | Nesterov momentum of the outer update\n");
