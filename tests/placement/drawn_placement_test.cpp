// Programs drawn at random, placed, and run on all ranks of a mesh by the plainest code there is: every value
// must be what one rank has of it, wherever it lies.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>

#include "placement/placement.hpp"
#include "program/step_program.hpp"

namespace prun::test::drawn_placement_test {
namespace {

using Numbers = std::vector<std::int64_t>;

// ---------------------------------------------------------------- ops

constexpr AttrDef through_attrs[] = {int_attr("wholes", 0), int_attr("prefers", -1), int_attr("passes", 0)};

struct Through {
  static constexpr const char* kind = "through";
  static constexpr const char* help = "x, whose dimensions of these bits are needed whole";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static constexpr const AttrDef (&attrs)[3] = through_attrs;
  static void rule(OpShape& s) {
    s.like(1, 0);
    const OperandShape& x = s.operand[0];
    for (int d = 0; d < x.rank; ++d)
      if ((s.attrs[0].i >> d & 1) != 0) s.whole(x.dims[d].name);
    if (s.attrs[1].i >= 0 && s.attrs[1].i < x.rank) s.prefer(x.dims[s.attrs[1].i].name);
    if (s.attrs[2].i == 0) return;
    s.pass_partial({0});
    s.pass_maximum({0});
  }
};

constexpr AttrDef fold_attrs[] = {int_attr("max", 0)};

struct Fold {
  static constexpr const char* kind = "fold";
  static constexpr const char* help = "the sum, or the largest, over the last dimension";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static constexpr const AttrDef (&attrs)[1] = fold_attrs;
  static void rule(OpShape& s) {
    const OperandShape x = s.operand[0];
    s.output(1, x.dtype, x.dims, x.rank - 1);
    s.attrs[0].i != 0 ? s.max(0, x.rank - 1, x.rank) : s.sum(0, x.rank - 1, x.rank);
  }
};

// ---------------------------------------------------------------- arrays

std::int64_t count_of(const std::vector<Dim>& dims) {
  std::int64_t n = 1;
  for (const Dim& dim : dims) n *= dim.extent;
  return n;
}

// Calls body(index by dimension, place) for each element.
void each(const std::vector<Dim>& dims, const std::function<void(const Numbers&, std::size_t)>& body) {
  Numbers index(dims.size(), 0);
  for (std::int64_t i = 0; i < count_of(dims); ++i) {
    body(index, static_cast<std::size_t>(i));
    for (std::size_t d = dims.size(); d-- > 0 && ++index[d] == dims[d].extent;) index[d] = 0;
  }
}

std::size_t place_in(const std::vector<Dim>& dims, const Numbers& index) {
  std::int64_t at = 0;
  for (std::size_t d = 0; d < dims.size(); ++d) at = at * dims[d].extent + index[d];
  return static_cast<std::size_t>(at);
}

Numbers folded_over_last(const Numbers& x, std::int64_t width, bool max) {
  Numbers y;
  for (std::size_t i = 0; i < x.size(); ++i)
    if (i % static_cast<std::size_t>(width) == 0)
      y.push_back(x[i]);
    else
      y.back() = max ? std::max(y.back(), x[i]) : y.back() + x[i];
  return y;
}

// ---------------------------------------------------------------- all ranks

class Ranks {
 public:
  explicit Ranks(const Program& program) : program_(program) {}

  void set(Id id, const Numbers& whole) {
    for (std::int64_t rank = 0; rank < program_.mesh().world(); ++rank)
      has_[id].push_back(part_of(id, rank, whole));
  }

  void run(const std::vector<Id>& ops) {
    for (const Id id : ops) run(id);
  }

  // Whether each rank has its part of it.
  void expect(Id id, const Numbers& whole, const std::string& drawn) const {
    for (std::int64_t rank = 0; rank < program_.mesh().world(); ++rank)
      ASSERT_EQ(has_.at(id)[static_cast<std::size_t>(rank)], part_of(id, rank, whole))
          << drawn << program_.value(id).name << " on rank " << rank;
  }

  std::int64_t swapped() const { return swapped_; }  // numbers that ranks have sent others by all-to-all

 private:
  using Rank = std::size_t;

  Numbers part_of(Id id, std::int64_t rank, const Numbers& whole) const {
    const std::vector<std::int64_t> starts = program_.starts(id, rank);
    Numbers part;
    each(program_.local_dims(id), [&](const Numbers& index, std::size_t) {
      Numbers at = index;
      for (std::size_t d = 0; d < at.size(); ++d) at[d] += starts[d];
      part.push_back(whole[place_in(program_.value(id).dims, at)]);
    });
    return part;
  }

  void run(Id id) {
    const Op& op = program_.op(id);
    const Id from = op.operands.front(), to = op.operands.back();
    std::vector<Numbers> results;
    for (std::int64_t rank = 0; rank < program_.mesh().world(); ++rank) {
      const Numbers x = has_.at(from)[static_cast<Rank>(rank)];
      results.push_back(op.exchange() ? exchanged(id, rank) : computed(id, rank, x));
      ASSERT_EQ(static_cast<std::int64_t>(results.back().size()), program_.local_elements(to)) << op.kind();
    }
    has_[to] = std::move(results);
  }

  Numbers computed(Id id, std::int64_t rank, const Numbers& x) const {
    const Op& op = program_.op(id);
    if (op.kind() == "through") return x;
    if (op.kind() == "fold") {
      return folded_over_last(x, program_.local_dims(op.operands[0]).back().extent,
                              program_.attr(id, "max") != 0);
    }
    if (op.kind() == "gate") {
      const std::string& open = program_.value(op.operands[1]).name;
      for (AxisId axis = 0; axis < program_.mesh().size(); ++axis)
        if (open.find(program_.mesh().name(axis)) != std::string::npos)
          return program_.mesh().coordinate(rank, axis) == 0 ? x : Numbers(x.size(), 0);
    }
    const auto dim = static_cast<std::size_t>(program_.attr(id, "dim"));
    const auto parts = static_cast<std::int64_t>(program_.attr(id, "parts"));
    if (op.kind() == "slice")
      return piece(program_.local_dims(op.operands[0]), x, dim, parts, along(id, rank));
    if (op.kind() == "block") {
      Numbers blocks;
      for (std::int64_t part = 0; part < parts; ++part) {
        const Numbers one = piece(program_.local_dims(op.operands[0]), x, dim, parts, part);
        blocks.insert(blocks.end(), one.begin(), one.end());
      }
      return blocks;
    }
    if (op.kind() == "unblock") return joined(program_.local_dims(op.operands[1]), x, dim, parts);
    ADD_FAILURE() << "no op " << op.kind();
    return {};
  }

  std::int64_t along(Id id, std::int64_t rank) const {
    return program_.mesh().coordinate(rank, program_.axis_of(id));
  }

  // One of `parts` equal pieces along a dimension.
  static Numbers piece(const std::vector<Dim>& dims, const Numbers& x, std::size_t dim, std::int64_t parts,
                       std::int64_t which) {
    Numbers result;
    const std::int64_t size = dims[dim].extent / parts;
    each(dims, [&](const Numbers& index, std::size_t at) {
      if (index[dim] / size == which) result.push_back(x[at]);
    });
    return result;
  }

  // Blocks side by side along a dimension of what they make together.
  static Numbers joined(const std::vector<Dim>& dims, const Numbers& blocks, std::size_t dim,
                        std::int64_t parts) {
    Numbers result(blocks.size());
    std::vector<Dim> block = dims;
    block[dim].extent /= parts;
    const std::int64_t size = block[dim].extent;
    each(dims, [&](const Numbers& index, std::size_t at) {
      Numbers within = index;
      within[dim] %= size;
      result[at] =
          blocks[static_cast<std::size_t>(index[dim] / size * count_of(block)) + place_in(block, within)];
    });
    return result;
  }

  Numbers exchanged(Id id, std::int64_t rank) {
    const Op& op = program_.op(id);
    const std::vector<int> members = program_.mesh().group(rank, program_.axis_of(id));
    const auto parts = static_cast<std::int64_t>(members.size());
    const std::vector<Numbers>& x = has_.at(op.operands.front());
    const bool max = op.exchange()->reduction == Reduction::max;
    const bool direct = op.has_attr("direct") && program_.attr(id, "direct") != 0;
    const auto dim = static_cast<std::size_t>(direct ? program_.attr(id, "dim") : 0);
    Numbers all;  // of all members, one behind the other
    for (const int member : members)
      all.insert(all.end(), x[static_cast<Rank>(member)].begin(), x[static_cast<Rank>(member)].end());
    switch (op.exchange()->kind) {
      case CommKind::all_gather:
        return direct ? joined(program_.local_dims(op.operands.back()), all, dim, parts) : all;
      case CommKind::all_reduce: return reduced(x, members, max);
      case CommKind::reduce_scatter:
        return piece(program_.local_dims(op.operands.front()), reduced(x, members, max), dim, parts,
                     along(id, rank));
      default: return swap(x, members, along(id, rank));
    }
  }

  static Numbers reduced(const std::vector<Numbers>& x, const std::vector<int>& members, bool max) {
    Numbers sum = x[static_cast<Rank>(members.front())];
    for (std::size_t m = 1; m < members.size(); ++m)
      for (std::size_t i = 0; i < sum.size(); ++i) {
        const std::int64_t one = x[static_cast<Rank>(members[m])][i];
        sum[i] = max ? std::max(sum[i], one) : sum[i] + one;
      }
    return sum;
  }

  Numbers swap(const std::vector<Numbers>& x, const std::vector<int>& members, std::int64_t own) {
    Numbers got;
    for (std::size_t m = 0; m < members.size(); ++m) {
      const Numbers& theirs = x[static_cast<Rank>(members[m])];
      const auto size = static_cast<std::ptrdiff_t>(theirs.size() / members.size());
      got.insert(got.end(), theirs.begin() + own * size, theirs.begin() + (own + 1) * size);
      if (static_cast<std::int64_t>(m) != own) swapped_ += size;
    }
    return got;
  }

  const Program& program_;
  std::map<Id, std::vector<Numbers>> has_;
  std::int64_t swapped_ = 0;
};

// ---------------------------------------------------------------- drawn programs

constexpr const char* names[] = {"a", "b", "c", "d"};

class Drawn {
 public:
  explicit Drawn(unsigned seed) : random_(seed), program_(registry(), {}, {1, 1}) {
    std::vector<Axis> axes;
    for (int i = 0; i < pick(1, 3); ++i)
      axes.push_back({std::string("x") + names[i], pick(2, i == 2 ? 2 : 3)});
    program_.set_mesh(Mesh(axes));
    std::vector<Dim> dims;
    for (int i = 0; i < pick(2, 4); ++i) dims.push_back({names[i], pick(0, 9) == 0 ? 6 : 12});
    const Segment segment = ProgramRef(&program_api(), &program_).segment("s");
    ParameterSpec spec{"w", {dims.data(), dims.size()}, zeros(), false};
    start_ = program_.add_parameter(segment.id(), spec);
    draw_ops(segment, dims.size());
    for (AxisId axis = 0; axis < axes.size(); ++axis) split(axes[axis].name, dims.size());
  }

  Program& program() { return program_; }
  std::int64_t swapped() const { return swapped_; }

  std::string text() const { return to_text_; }

  // Each value of the drawn ops is what it is on one rank.
  void expect_right() {
    Ranks ranks(program_);
    Numbers whole(static_cast<std::size_t>(program_.value(start_).elements()));
    for (std::int64_t& one : whole) one = pick(-50, 50);
    ranks.set(start_, whole);
    const std::vector<Id> ops = program_.segment(1).ops(FunctionKind::forward);
    ranks.run(ops);
    for (const Id id : own_) {
      const Op& op = program_.op(id);
      if (op.kind() == "fold") whole = folded_over_last(whole, width_.at(id), program_.attr(id, "max") != 0);
      if (!is_incomplete(op.operands[1])) ranks.expect(op.operands[1], whole, text());
    }
    swapped_ = ranks.swapped();
  }

 private:
  static std::shared_ptr<const OpRegistry> registry() {
    auto ops = std::make_shared<OpRegistry>();
    ops->add(op_def<Through>(), "test");
    ops->add(op_def<Fold>(), "test");
    return ops;
  }

  int pick(int low, int high) { return std::uniform_int_distribution(low, high)(random_); }

  void split(const std::string& axis, std::size_t dims) {
    for (int i = 0; i < pick(1, 3); ++i) {
      const char* const dim = names[pick(0, static_cast<int>(dims) - 1)];
      const auto scope = static_cast<SplitScope>(pick(0, 2));
      program_.split(dim, axis, scope);
      to_text_ += axis + " " + dim + " " + std::to_string(static_cast<int>(scope)) + "\n";
    }
  }

  void draw_ops(const Segment& segment, std::size_t rank) {
    Id x = start_;
    for (int i = 0; i < 7; ++i) {
      if (rank > 1 && pick(0, 3) == 0) {
        const std::int64_t width = program_.value(x).dims.back().extent;
        x = add(segment, "fold", x, {{"max", static_cast<double>(pick(0, 1))}});
        width_[own_.back()] = width;
        --rank;
        continue;
      }
      const int all = (1 << rank) - 1;
      x = add(segment, "through", x,
              {{"wholes", static_cast<double>(pick(0, all) & pick(0, all))},
               {"prefers", static_cast<double>(pick(-2, static_cast<int>(rank) - 1))},
               {"passes", static_cast<double>(pick(0, 1))}});
    }
    add(segment, "through", x,
        {{"wholes", static_cast<double>((1 << rank) - 1)}, {"prefers", -1.0}, {"passes", 0.0}});
  }

  Id add(const Segment& segment, const char* kind, Id x, std::initializer_list<AttrValue> attrs) {
    const Id y = segment.op(kind, {x}, attrs);
    own_.push_back(segment.operations(FunctionKind::forward).back());
    return y;
  }

  bool is_incomplete(Id id) const {
    const std::vector<AxisPlacement>& lies = program_.value(id).placement;
    return std::any_of(lies.begin(), lies.end(), [](const AxisPlacement& on) { return on.is_incomplete(); });
  }

  std::mt19937 random_;
  Program program_;
  Id start_ = none;
  std::vector<Id> own_;  // ops
  std::map<Id, std::int64_t> width_;
  std::string to_text_;
  std::int64_t swapped_ = 0;
};

std::map<std::string, int> count_ops(const Program& program) {
  std::map<std::string, int> count;
  for (const Id op : program.segment(1).ops(FunctionKind::forward))
    ++count[std::string(program.op(op).kind())];
  return count;
}

TEST(DrawnPlacement, EveryValueIsWhatOneRankHas) {
  std::map<std::string, int> seen;
  int placed = 0;
  for (unsigned seed = 0; seed < 600; ++seed) {
    Drawn drawn(seed);
    try {
      place_on_mesh(drawn.program());
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("is not a multiple of"), std::string::npos) << error.what();
      continue;
    }
    ++placed;
    SCOPED_TRACE("seed " + std::to_string(seed));
    drawn.expect_right();
    if (HasFatalFailure()) return;
    for (const auto& [kind, count] : count_ops(drawn.program())) seen[kind] += count;
  }
  EXPECT_GT(placed, 300);
  for (const char* kind : {"all_to_all", "reduce_scatter_max", "all_reduce_max", "reduce_scatter",
                           "all_reduce", "all_gather", "slice"})
    EXPECT_GT(seen[kind], 10) << kind;
}

// ---------------------------------------------------------------- one exchange

// x[a, b, c] lies along one dimension and is needed along another, where the mesh has other axes.
struct Swap {
  Program program;
  Id result = none;

  Swap(int from, int to, std::vector<Axis> axes, const std::string& axis, std::int64_t extent = 12)
      : program(registry(), {}, {1, 1}) {
    program.set_mesh(Mesh(std::move(axes)));
    const Segment segment = ProgramRef(&program_api(), &program).segment("s");
    const Id w = segment.weight("w", {{"a", 12}, {"b", extent}, {"c", 12}}, zeros());
    const Id x = segment.op("through", {w});
    result = segment.op("through", {x}, {{"wholes", static_cast<double>(1 << from)}});
    program.split(names[from], axis);
    program.split(names[to], axis, SplitScope::ops);
  }
  static std::shared_ptr<const OpRegistry> registry() {
    auto ops = std::make_shared<OpRegistry>();
    ops->add(op_def<Through>(), "test");
    return ops;
  }
};

TEST(Swaps, AnyPairOfDimensionsIsExchangedByOneAllToAll) {
  for (int from = 0; from < 3; ++from)
    for (int to = 0; to < 3; ++to) {
      if (from == to) continue;
      Swap swap(from, to, {{"x", 4}}, "x");
      place_on_mesh(swap.program);
      EXPECT_EQ(swap.program.value(swap.result).on(0), AxisPlacement::sharded(names[to]));
      std::map<std::string, int> ops = count_ops(swap.program);
      EXPECT_EQ(ops["all_to_all"], 1);
      EXPECT_EQ(ops["block"], 1);
      EXPECT_EQ(ops["unblock"], 1);
      EXPECT_EQ(ops["all_gather"] + ops["slice"], 0);
      // Each of four ranks sends three quarters of its quarter.
      Ranks ranks(swap.program);
      Numbers whole(12 * 12 * 12);
      for (std::size_t i = 0; i < whole.size(); ++i) whole[i] = static_cast<std::int64_t>(i);
      ranks.set(swap.program.parameters().front(), whole);
      ranks.run(swap.program.segment(1).ops(FunctionKind::forward));
      ranks.expect(swap.result, whole, "");
      EXPECT_EQ(ranks.swapped(), 4 * (12 * 12 * 12 / 4) * 3 / 4);
    }
}

TEST(Swaps, APartThatDoesNotDivideIsRefused) {
  Swap swap(0, 1, {{"x", 4}}, "x", 6);
  try {
    place_on_mesh(swap.program);
    FAIL() << "nothing was raised";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "cannot split dimension 'b' of 'through.y' over axis 'x': 6 is not a multiple of 4");
  }
}

}  // namespace
}  // namespace prun::test::drawn_placement_test
