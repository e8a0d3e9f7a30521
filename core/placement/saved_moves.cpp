#include "placement/saved_moves.hpp"

#include <algorithm>
#include <set>
#include <vector>

#include "placement/copies.hpp"

namespace prun {
namespace {

class SavedMoves {
 public:
  SavedMoves(Program& program, Id segment) : program_(program), segment_(segment) {}

  void run() {
    for (Id op : program_.segment(segment_).ops(FunctionKind::forward)) add_written(program_.op(op));
    if (const Id incoming = program_.segment(segment_).incoming; incoming != none) made_.insert(incoming);
    for (FunctionKind kind : backward_functions) leave_what_changes(kind);
    for (FunctionKind kind : backward_functions) add_read(kind);
    share_out();
    for (Move& move : moves_) make_room(move);
    add_copies();
    for (FunctionKind kind : backward_functions) read_what_returned(kind);
  }

 private:
  struct Move {
    Id value = none;
    MemoryPlace to;
    Id away = none, back = none;
  };

  void add_written(const Op& op) {
    for (std::size_t i = 0; i < op.operands.size(); ++i)
      if (const Id id = op.operands[i]; id != none && op.access(i) == Access::write &&
                                        program_.value(id).role == Role::activation &&
                                        !program_.value(id).place)
        made_.insert(id);
  }

  // Drops values that one of these ops changes: later readers must see the change.
  void leave_what_changes(FunctionKind kind) {
    for (Id id : program_.segment(segment_).ops(kind))
      for (std::size_t i = 0; i < program_.op(id).operands.size(); ++i)
        if (program_.op(id).access(i) != Access::read) made_.erase(program_.op(id).operands[i]);
  }

  void add_read(FunctionKind kind) {
    for (Id op : program_.segment(segment_).ops(kind))
      for (Id value : program_.op(op).operands)
        if (made_.count(value) != 0 && !move_of(value)) moves_.push_back({value, {}});
  }

  Move* move_of(Id value) {
    const auto found =
        std::find_if(moves_.begin(), moves_.end(), [&](const Move& move) { return move.value == value; });
    return found == moves_.end() ? nullptr : &*found;
  }

  // Assigns values to places, the largest first, each to the place furthest below its share. Values assigned
  // to the device are not moved.
  void share_out() {
    std::vector<Move*> largest_first;
    double all = 0;
    for (Move& move : moves_) {
      largest_first.push_back(&move);
      all += bytes_of(move);
    }
    std::stable_sort(largest_first.begin(), largest_first.end(),
                     [&](const Move* a, const Move* b) { return bytes_of(*a) > bytes_of(*b); });
    struct Missing {
      MemoryPlace place;
      double bytes;
    };
    std::vector<Missing> missing;
    for (const SavedShare& share : program_.segment(segment_).saved)
      missing.push_back({share.place, all * share.percent / 100});
    for (Move* const move : largest_first) {
      Missing& most = *std::max_element(missing.begin(), missing.end(),
                                        [](const Missing& a, const Missing& b) { return a.bytes < b.bytes; });
      move->to = most.place;
      most.bytes -= bytes_of(*move);
    }
    std::erase_if(moves_, [](const Move& move) { return move.to == MemoryPlace{}; });
  }

  double bytes_of(const Move& move) const { return program_.local_bytes(move.value); }

  void make_room(Move& move) {
    move.away = like(move.value, ".away");
    move.back = like(move.value, ".back");
    program_.value(move.away).place = move.to;
    program_.value(move.back).in_turn = true;
    const bool passes = move.value == program_.segment(segment_).incoming ||
                        move.value == program_.segment(segment_).outgoing || program_.is_carried(move.value);
    program_.value(move.value).in_turn = !passes;
  }

  Id like(Id id, const char* suffix) {
    Value copy = program_.value(id);
    copy.name += suffix;
    copy.segment = segment_;
    return program_.add_value(std::move(copy));
  }

  // Values for drives are offloaded first, and fetched after those of faster places, which need not wait for
  // them.
  void add_copies() {
    const auto copy = [&](bool drives, FunctionKind function, Id Move::*from, Id Move::*to) {
      for (const Move& move : moves_)
        if ((move.to.space == Space::disk) == drives)
          add_copy(program_, segment_, function, move.*from, move.*to);
    };
    for (const bool drives : {true, false}) copy(drives, FunctionKind::put_away, &Move::value, &Move::away);
    for (const bool drives : {false, true}) copy(drives, FunctionKind::bring_back, &Move::away, &Move::back);
  }

  void read_what_returned(FunctionKind kind) {
    const std::vector<Id> ops = program_.segment(segment_).ops(kind);
    for (Id op : ops)
      for (std::size_t i = 0; i < program_.op(op).operands.size(); ++i)
        if (const Move* const move = move_of(program_.op(op).operands[i]))
          program_.replace_operand(op, i, move->back);
  }

  Program& program_;
  const Id segment_;
  std::set<Id> made_;        // written by forward or received from the layer before
  std::vector<Move> moves_;  // in the order in which backward reads them
};

}  // namespace

void derive_saved_moves(Program& program) {
  for (Id segment = 0; segment < program.segment_count(); ++segment)
    if (!program.segment(segment).saved.empty()) SavedMoves(program, segment).run();
}

}  // namespace prun
