#include "plan/order/order.hpp"

#include <algorithm>
#include <limits>
#include <map>

#include "base/narrow.hpp"
#include "plan/persistent.hpp"

namespace prun {
namespace {

constexpr std::int32_t nobody = std::numeric_limits<std::int32_t>::max();

// Finds the persistent values in a range of bytes. Several may have the same bytes: a flat parameter and its
// members.
class PersistentBytes {
 public:
  PersistentBytes(const Plan& plan, const std::vector<PersistentValue>& values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const Address& allocation = plan.allocation(values[i].value);
      const std::int64_t at = plan.resolve(values[i].instance, allocation);
      if (allocation.bytes > 0) ranges_.push_back({at, at + allocation.bytes, i});
    }
    std::sort(ranges_.begin(), ranges_.end(),
              [](const Range& a, const Range& b) { return a.begin < b.begin; });
    for (const Range& range : ranges_)
      reach_.push_back(std::max(reach_.empty() ? 0 : reach_.back(), range.end));
  }

  // Calls body(number) for each value that has some of the bytes.
  template <class Body>
  void each_within(std::int64_t begin, std::int64_t end, Body&& body) const {
    const auto behind = std::partition_point(ranges_.begin(), ranges_.end(),
                                             [&](const Range& range) { return range.begin < end; });
    for (auto i = static_cast<std::size_t>(behind - ranges_.begin()); i-- > 0 && reach_[i] > begin;)
      if (ranges_[i].end > begin) body(ranges_[i].value);
  }

 private:
  struct Range {
    std::int64_t begin = 0, end = 0;
    std::size_t value = 0;
  };
  std::vector<Range> ranges_;        // ranges by where they begin
  std::vector<std::int64_t> reach_;  // furthest end of all ranges up to here
};

class SaveReads {
 public:
  SaveReads(const Program& program, std::int64_t rank, Plan& plan)
      : program_(program), plan_(plan), values_(list(rank)), bytes_(plan, values_) {}

  void run(const std::vector<SaveRead>* known) {
    if (known) {
      plan_.save_reads = *known;
      number_reads();
    } else {
      find_first_writers();
      make_reads();
    }
    make_waits();
  }

 private:
  // Lists persistent values, with both halves of those that precision.master = "split" stores in two.
  std::vector<PersistentValue> list(std::int64_t rank) {
    std::vector<PersistentValue> values;
    for (const HeldSlice& held : held_slices(program_, plan_.instances, rank)) {
      values.push_back({held.value, held.instance});
      if (held.rounded == none) continue;
      values.push_back({held.rounded, held.instance});
      halves_.emplace_back(values[values.size() - 2], values.back());
    }
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    return values;
  }

  std::size_t number(const PersistentValue& value) const {
    return static_cast<std::size_t>(std::lower_bound(values_.begin(), values_.end(), value) -
                                    values_.begin());
  }

  // Calls body(number) for each value that the call writes to.
  template <class Body>
  void each_written(const Call& call, Body&& body) const {
    const auto give = [&](const Address& address) {
      if (address.bytes == 0 || !lasts(address.region)) return;
      const std::int64_t at = plan_.resolve(call, address, 0);
      bytes_.each_within(at, at + address.bytes, body);
    };
    for (const PlannedStep& step : plan_.steps(call)) {
      if (step.exchange) give(step.exchange->out);
      for (std::size_t i = 0; !step.exchange && i < step.operands.size(); ++i)
        if (step.operands[i].value != none && program_.op(step.op).access(i) != Access::read)
          give(step.operands[i].address);
    }
  }

  // Finds the first call that overwrites each value. Halves are read together, before either is overwritten.
  void find_first_writers() {
    first_.assign(values_.size(), nobody);
    for (std::size_t c = 0; c < plan_.calls.size(); ++c)
      each_written(plan_.calls[c], [&](std::size_t value) {
        first_[value] = std::min(first_[value], static_cast<std::int32_t>(c));
      });
    for (const auto& [low, rounded] : halves_) {
      std::int32_t &a = first_[number(low)], &b = first_[number(rounded)];
      a = b = std::min(a, b);
    }
  }

  // Groups values by first writer into reads; values that are never overwritten are in the last one.
  void make_reads() {
    std::map<std::int32_t, SaveRead> by_writer;
    for (std::size_t i = 0; i < values_.size(); ++i) by_writer[first_[i]].push_back(values_[i]);
    for (auto& [writer, read] : by_writer) plan_.save_reads.push_back(std::move(read));
    number_reads();
  }

  void number_reads() {
    read_of_.resize(values_.size());
    for (std::size_t i = 0; i < plan_.save_reads.size(); ++i)
      for (const PersistentValue& value : plan_.save_reads[i])
        read_of_[number(value)] = narrow<std::int32_t>(i);
  }

  // Lets each call wait for the reads of what it overwrites, unless an earlier call of its queue has, or one
  // that it waits for. `known`: the latest read that is done when a call begins, by queue and call.
  void make_waits() {
    Numbered<Numbered<std::int32_t>> known;
    for (const QueueInfo& queue : plan_.queues) known.emplace_back(queue.calls, -1);
    for (Call& call : plan_.calls) {
      std::int32_t before = call.position > 0 ? known[call.queue][call.position - 1] : -1;
      for (const Wait& wait : call.waits)
        if (wait.steps_ago == 0) before = std::max(before, known[wait.queue][wait.call]);
      std::int32_t needed = -1;
      each_written(call, [&](std::size_t value) { needed = std::max(needed, read_of_[value]); });
      if (needed > before) call.save_read = needed;
      known[call.queue][call.position] = std::max(before, needed);
    }
  }

  const Program& program_;
  Plan& plan_;
  std::vector<std::pair<PersistentValue, PersistentValue>> halves_;
  const std::vector<PersistentValue> values_;  // values in sorted order
  const PersistentBytes bytes_;
  std::vector<std::int32_t> first_, read_of_;  // first call and read, by value
};

}  // namespace

void derive_save_reads(const Program& program, std::int64_t rank, Plan& plan,
                       const BaseProgram* base_program) {
  const bool again = base_program && base_program->is_of(program);
  SaveReads(program, rank, plan).run(again ? &base_program->plan.save_reads : nullptr);
}

}  // namespace prun
