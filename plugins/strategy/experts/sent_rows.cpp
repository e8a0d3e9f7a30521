#include "sent_rows.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <vector>

namespace prun {
namespace {

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

}  // namespace

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

}  // namespace prun
