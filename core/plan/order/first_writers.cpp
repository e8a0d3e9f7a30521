#include <algorithm>
#include <set>

#include "base/narrow.hpp"
#include "plan/order/order.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- first writers

class FirstWriters {
 public:
  FirstWriters(const Program& program, Plan& plan) : program_(program), plan_(plan) {}

  void run() {
    for (std::size_t c = 0; c < plan_.calls.size(); ++c) follow(c);
    for (const auto& [sum, clear] : begun_) needed_.insert(clear);  // no call adds to it
    for (const First& first : firsts_)
      if (needed_.count(first.clear) == 0) tell(first);
    remove_clears();
  }

 private:
  using Place = std::pair<std::int32_t, std::int32_t>;     // function and step
  using Sum = std::tuple<Id, std::int32_t, std::int32_t>;  // value, instance, and age in steps

  struct First {
    Place clear;
    std::size_t call = 0, step = 0, operand = 0;
  };

  void follow(std::size_t c) {
    const Call& call = plan_.calls[c];
    const std::span<const PlannedStep> steps = plan_.steps(call);
    for (std::size_t s = 0; s < steps.size(); ++s) {
      if (clears(call, steps[s]))
        begin(call, s);
      else
        touch(c, s);
    }
  }

  FunctionKind kind_of(const Call& call) const { return plan_.functions[call.function].kind; }

  bool clears(const Call& call, const PlannedStep& step) const {
    const FunctionKind kind = kind_of(call);
    if (step.op == none || (kind != FunctionKind::zero && kind != FunctionKind::clear)) return false;
    const Op& op = program_.op(step.op);
    return op.def->clears && op.operands.size() == 1;
  }

  Sum sum_of(const Call& call, const PlannedOperand& operand) const {
    const bool fixed = operand.address.whose == Whose::fixed;
    return {operand.value, fixed ? operand.address.instance : call.instance, call.behind};
  }

  void begin(const Call& call, std::size_t s) {
    const std::int32_t first = planned(call.function).pieces[call.piece].first;
    const Place clear{call.function, first + static_cast<std::int32_t>(s)};
    const auto [sum, fresh] = begun_.try_emplace(sum_of(call, plan_.steps(call)[s].operands.front()), clear);
    if (!fresh) needed_.insert({clear, sum->second});  // cleared twice, with nothing in between
    cleared_.insert(clear);
  }

  // The first step that touches a sum decides whether its clear stays.
  void touch(std::size_t c, std::size_t s) {
    const Call& call = plan_.calls[c];
    const PlannedStep& step = plan_.steps(call)[s];
    for (std::size_t i = 0; i < step.operands.size(); ++i) {
      const auto sum = begun_.find(sum_of(call, step.operands[i]));
      if (sum == begun_.end()) continue;
      if (can_begin(step, i))
        firsts_.push_back({sum->second, c, s, i});
      else
        needed_.insert(sum->second);
      begun_.erase(sum);
    }
  }

  bool can_begin(const PlannedStep& step, std::size_t i) const {
    if (!step.kernel || (step.writes_first >> i & 1) == 0) return false;
    const Op& op = program_.op(step.op);
    return op.access(i) == Access::update &&
           std::count(op.operands.begin(), op.operands.end(), op.operands[i]) == 1;
  }

  void tell(const First& first) {
    Call& call = plan_.calls[first.call];
    call.first.resize(plan_.steps(call).size());
    call.first[first.step] |= 1u << first.operand;
  }

  // ------------------------------------------------------------- what is left

  PlannedFunction& planned(std::int32_t function) const { return plan_.functions[function]; }

  void remove_clears() {
    Numbered<std::int32_t> kept;  // new number by function; -1: nothing is left of it
    Numbered<Numbered<std::int32_t>> pieces;
    Numbered<PlannedFunction> functions;
    for (std::size_t f = 0; f < plan_.functions.size(); ++f) {
      pieces.push_back(remove_steps(static_cast<std::int32_t>(f)));
      const bool empty = plan_.functions[f].steps.empty();
      kept.push_back(empty ? -1 : narrow<std::int32_t>(functions.size()));
      if (!empty) functions.push_back(std::move(plan_.functions[f]));
    }
    plan_.functions = std::move(functions);
    for (PlannedFunction& function : plan_.functions)
      for (InstancePiece& of : function.joins) {
        of.piece = pieces[of.function][of.piece];
        of.function = kept[of.function];
      }
    for (Call& call : plan_.calls) {
      call.piece = pieces[call.function][call.piece];
      call.function = kept[call.function];
    }
    std::erase_if(plan_.calls, [](const Call& call) { return call.piece < 0; });
    for (Chunk& chunk : plan_.chunks)
      for (std::int32_t* function :
           {&chunk.receive, &chunk.send, &chunk.receive_gradient, &chunk.send_gradient})
        if (*function >= 0) *function = kept[*function];
    for (QueueInfo& queue : plan_.queues) queue.calls = 0;
    for (Call& call : plan_.calls) call.position = plan_.queues[call.queue].calls++;
  }

  // Returns the new number of each piece, or -1 if nothing is left of it.
  std::vector<std::int32_t> remove_steps(std::int32_t f) {
    PlannedFunction& function = planned(f);
    std::vector<PlannedStep> steps;
    std::vector<Piece> pieces;
    std::vector<std::int32_t> numbers;
    for (const Piece& piece : function.pieces) {
      const auto first = narrow<std::int32_t>(steps.size());
      for (std::int32_t s = piece.first; s < piece.last; ++s)
        if (cleared_.count({f, s}) == 0 || needed_.count({f, s}) != 0)
          steps.push_back(std::move(function.steps[s]));
      const auto last = narrow<std::int32_t>(steps.size());
      const bool empty = first == last && piece.first != piece.last;
      numbers.push_back(empty ? -1 : narrow<std::int32_t>(pieces.size()));
      if (!empty) pieces.push_back({first, last, piece.queue});
    }
    function.steps = std::move(steps);
    function.pieces = std::move(pieces);
    return numbers;
  }

  const Program& program_;
  Plan& plan_;
  std::map<Sum, Place> begun_;  // sums cleared and not touched since
  std::set<Place> cleared_;     // all steps that clear
  std::set<Place> needed_;      // those of them that must stay
  std::vector<First> firsts_;
};

}  // namespace

void choose_first_writers(const Program& program, Plan& plan) { FirstWriters(program, plan).run(); }

namespace {

// ------------------------------------------------------------------- carried sums

class CarriedSums {
 public:
  CarriedSums(const Program& program, Plan& plan) : program_(program), plan_(plan) {}

  void run() {
    for (Call& call : plan_.calls) {
      const std::span<const PlannedStep> steps = plan_.steps(call);
      for (std::size_t s = 0; s < steps.size(); ++s) {
        if (steps[s].op == none)
          arrive(call, steps[s]);
        else
          add(call, steps, s);
      }
    }
  }

 private:
  void arrive(const Call& call, const PlannedStep& step) {
    const Id value = step.operands.front().value;
    if (step.exchange->kind == CommKind::recv && program_.is_carried_gradient(value))
      begun_.insert({value, call.microbatch});
  }

  void add(Call& call, std::span<const PlannedStep> steps, std::size_t s) {
    const PlannedStep& step = steps[s];
    const Op& op = program_.op(step.op);
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      if (op.access(i) != Access::update || !program_.is_carried_gradient(op.operands[i])) continue;
      if (!begun_.insert({op.operands[i], call.microbatch}).second) continue;
      if ((step.writes_first >> i & 1u) == 0)
        throw_error(ErrorCode::unsupported, "cannot begin the gradient of a carried value with op '",
                    op.kind(), "' of segment '", program_.segment(op.segment).name,
                    "': its kernel only adds; give it KernelDef::writes_first");
      if (call.first.empty()) call.first.resize(steps.size());
      call.first[s] |= 1u << i;
    }
  }

  const Program& program_;
  Plan& plan_;
  std::set<std::pair<Id, std::int32_t>> begun_;  // pairs of sum and microbatch
};

}  // namespace

void begin_carried_sums(const Program& program, Plan& plan) {
  if (!program.carried().empty()) CarriedSums(program, plan).run();
}

}  // namespace prun
