// In expert parallelism each rank of an axis has a part of a model's experts, whole. It computes the choices
// of its experts for all positions: over an axis that splits the batch, positions come together for that and
// results go back in parts; over an axis of strategy tensor they are there already. Or each position is sent
// to the ranks that hold its experts (sent rows, below). The places of these exchanges follow from the ops'
// rules.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "prun/plugin.hpp"
#include "prun/program.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- sent rows
// Rewrites a program so that a position is sent to the ranks that hold experts it has chosen, and to no
// others: positions, choices and weights become rows by part of the experts (op send_rows), which ranks
// exchange for rows of their own part, and results come back the same way.

struct SentRows {
  std::int64_t parts = 1;  // of the experts, one for each rank
  double budget = 1;       // rows of a part and a sequence are this times their mean
};

// Holds sizes of the rows of one op. Its operands begin alike in forward and backward.
class RowSizes {
 public:
  RowSizes(ProgramRef program, Id op, const SentRows& sent) : parts_(sent.parts) {
    const Array<Id> operands = program.op(op).operands;
    const ValueInfo index = program.value(operands.data[1]), up = program.value(operands.data[3]);
    positions_ = index.dims[1].extent;
    choices_ = index.dims[2].extent;
    experts_ = up.dims[0].extent;
    if (experts_ % parts_ != 0)
      throw_error(ErrorCode::bad_input, experts_, " experts are not ", parts_,
                  " equal parts; choose model.experts as a multiple of ", parts_);
    const double most = std::ceil(sent.budget * mean() * (1 - 1e-12));
    rows_ = static_cast<std::int64_t>(std::clamp(most, 1.0, static_cast<double>(positions_)));
  }

  // Returns the positions of a sequence that have a choice in a part, if all choices are equally likely:
  // 1 - C(experts - experts of the part, choices) / C(experts, choices) of them.
  double mean() const {
    const std::int64_t others = experts_ - experts_ / parts_;
    double none_of_them = 1;
    for (std::int64_t c = 0; c < choices_; ++c)
      none_of_them *= std::max(0.0, static_cast<double>(others - c) / static_cast<double>(experts_ - c));
    return static_cast<double>(positions_) * (1 - none_of_them);
  }
  std::array<AttrValue, 3> attrs() const {
    return {AttrValue{"parts", number(parts_)}, {"rows", number(rows_)}, {"experts", number(experts_)}};
  }
  std::array<AttrValue, 2> of_experts() const {
    return {AttrValue{"experts", number(experts_)}, {"positions", number(positions_)}};
  }

 private:
  static double number(std::int64_t n) { return static_cast<double>(n); }

  std::int64_t parts_, positions_ = 0, choices_ = 0, experts_ = 0, rows_ = 0;
};

// Rewrites one function of a segment. What has been sent once is not sent again there.
class Sender {
 public:
  Sender(const Segment& segment, FunctionKind function, const SentRows& sent)
      : segment_(segment), program_(segment.program()), function_(function), sent_(sent) {}

  void run(Id tally) {
    for (const Id op : segment_.operations(function_)) {
      const std::string_view kind = program_.op(op).kind.view();
      if (kind == "biased_experts")
        throw_error(
            ErrorCode::unsupported,
            "exchange = \"all_to_all\" sends rows to experts without biases, and those of this model have "
            "some; take exchange = \"gather\"");
      if (kind == "experts") forward(op, tally);
      if (kind == "experts_grad") backward(op);
      if (kind == "experts_weight_grad") backward_weight(op);
    }
  }

 private:
  struct Choices {
    Id index, weight;
  };

  std::vector<Id> operands_of(Id op) const {
    const Array<Id> operands = program_.op(op).operands;
    return {operands.begin(), operands.end()};
  }

  Id rows(Id value, Id index, Id before, const RowSizes& sizes) {
    Id& made = rows_.try_emplace({value, index}, none).first->second;
    const auto [parts, rows, experts] = sizes.attrs();
    if (made == none)
      made = segment_.insert(function_, before, "send_rows", {value, index}, 1, {parts, rows, experts})[0];
    return made;
  }

  Choices choices(Id index, Id weight, Id before, const RowSizes& sizes) {
    const auto known = choices_.find({index, weight});
    if (known != choices_.end()) return known->second;
    const auto [parts, rows, experts] = sizes.attrs();
    const std::vector<Id> made =
        segment_.insert(function_, before, "send_choices", {index, weight}, 2, {parts, rows, experts});
    return choices_[{index, weight}] = {made[0], made[1]};
  }

  void forward(Id op, Id tally) {
    const std::vector<Id> of = operands_of(op);
    const RowSizes sizes(program_, op, sent_);
    const auto [parts, rows_of, experts] = sizes.attrs();
    const auto [all, positions] = sizes.of_experts();
    segment_.insert(function_, op, "count_rows", {of[1], tally}, 0,
                    {parts, rows_of, experts, {"mean", sizes.mean()}});
    const Id x = rows(of[0], of[1], op, sizes);
    const Choices own = choices(of[1], of[2], op, sizes);
    const Id y = segment_.insert(function_, op, "experts", {x, own.index, own.weight, of[3], of[4]}, 1,
                                 {all, positions})[0];
    program_.replace_op(op, "return_rows", {y, of[1], none, of[5], none}, {parts, rows_of, experts});
  }

  void backward(Id op) {
    const std::vector<Id> of = operands_of(op);
    const RowSizes sizes(program_, op, sent_);
    const auto [parts, rows_of, experts] = sizes.attrs();
    const auto [all, positions] = sizes.of_experts();
    const Id x = rows(of[0], of[1], op, sizes), dy = rows(of[5], of[1], op, sizes);
    const Choices own = choices(of[1], of[2], op, sizes);
    const std::vector<Id> made = segment_.insert(
        function_, op, "experts_grad", {x, own.index, own.weight, of[3], of[4], dy}, 2, {all, positions});
    program_.replace_op(op, "return_rows", {made[0], of[1], made[1], of[7], of[8]},
                        {parts, rows_of, experts});
  }

  void backward_weight(Id op) {
    const std::vector<Id> of = operands_of(op);
    const RowSizes sizes(program_, op, sent_);
    const auto [all, positions] = sizes.of_experts();
    const Id x = rows(of[0], of[1], op, sizes), dy = rows(of[5], of[1], op, sizes);
    const Choices own = choices(of[1], of[2], op, sizes);
    program_.replace_op(op, "experts_weight_grad",
                        {x, own.index, own.weight, of[3], of[4], dy, none, of[7], of[8]}, {all, positions});
  }

  const Segment& segment_;
  const ProgramRef program_;
  const FunctionKind function_;
  const SentRows& sent_;
  std::map<std::pair<Id, Id>, Id> rows_;
  std::map<std::pair<Id, Id>, Choices> choices_;
};

bool has_experts(const Segment& segment) {
  for (const Id op : segment.operations(FunctionKind::forward))
    if (segment.program().op(op).kind.view().ends_with("experts")) return true;
  return false;
}

// Rewrites all ops `experts` and their gradients. It runs in phase `shard`.
void send_rows(ProgramRef program, const SentRows& sent) {
  for (const Segment& segment : program.segments()) {
    if (!has_experts(segment)) continue;
    // It has the name of the option that says how many are planned.
    const Id tally = segment.tally("rows", {{"bound", 2}});
    for (const FunctionKind function :
         {FunctionKind::backward, FunctionKind::backward_weight, FunctionKind::forward})
      Sender(segment, function, sent).run(tally);
  }
}

}  // namespace
}  // namespace prun

// ------------------------------------------------------------------- experts

namespace prun {
namespace {

class ExpertParallel final : public Strategy {
 public:
  explicit ExpertParallel(const Options& options)
      : axes_(options.texts("axis")),
        sends_(options.text("exchange") == "all_to_all"),
        budget_(options.number("rows")) {}

  void apply(Phase, ProgramRef program) override {
    if (!has_experts(program))
      throw_error(ErrorCode::bad_input, "the model has no dimension experts to split over '", axes_.front(),
                  "'; leave the strategy out");
    for (const std::string& axis : axes_) program.split("experts", axis, SplitScope::weights);
    if (!sends_) return;
    const std::int64_t ranks = program.axis(axes_.front()).extent;
    if (ranks > 1) send_rows(program, {ranks, budget_});
  }

 private:
  static bool has_experts(ProgramRef program) {
    for (const Segment& segment : program.segments())
      for (const Id id : segment.values()) {
        const ValueInfo value = program.value(id);
        for (std::int32_t i = 0; i < value.rank; ++i)
          if (value.dims[i].name.view() == "experts") return true;
      }
    return false;
  }

  std::vector<std::string> axes_;
  bool sends_;
  double budget_;
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(strategy, prun::ExpertParallel, "experts", "0.2.0",
            "Distributes the experts over axes of the mesh",
            "phase=shard; axis=batch; tune=exact; changes=exchange, rows; "
            "bench=exchange:gather, exchange:all_to_all; "
            "over_batch=exchange:all_to_all; untrained=exchange:gather; "
            "also=ep,expert_parallel,expert-parallel,moe",
            "axis     | names | dp | | Mesh axes to distribute the experts over: data, tensor or both\n"
            "exchange | choice | gather | gather,all_to_all | How tokens reach experts over an axis that "
            "splits the batch: gather: all-gather all tokens; all_to_all: send each token to the ranks that "
            "hold its experts (one axis only)\n"
            "rows     | float | 1.5 | 0.01.. | With all_to_all: tokens of a sequence that a rank can "
            "receive, as a multiple of the mean under even routing, at most all of them; a step that needs "
            "more is not applied, see run.on_nonfinite\n");
