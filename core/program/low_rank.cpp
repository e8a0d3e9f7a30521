// Checks changes of low rank beside frozen weights: what strategies say of them must match the program.
#include <algorithm>

#include "program/step_program.hpp"

namespace prun {
namespace {

bool same_dims(std::span<const Dim> a, std::span<const Dim> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

// Finds what LowRank leaves to be read off the parameters.
class ChangeReader {
 public:
  ChangeReader(const Program& program, const LowRank& said)
      : said_(said),
        weight_(program.value(said.weight)),
        down_(program.value(said.down)),
        up_(program.value(said.up)) {}

  LowRankChange read() const {
    check_parameters();
    LowRankChange change{said_.weight,        said_.down, said_.up, down_.dims.size() - 1,
                         weight_.dims.size(), 0,          0,        said_.factor,
                         said_.dropout};
    const std::size_t out = weight_.dims.size() - std::min(weight_.dims.size(), change.in_dims);
    if (said_.part.size > 0) {
      for (std::size_t d = 0; d < out; ++d)
        if (weight_.dims[d].name.view() == said_.part.view()) change.part = d;
      if (change.part == weight_.dims.size()) refuse("has no dimension '", said_.part.view(), "' to cut");
      change.begin = said_.begin;
      change.end = said_.end;
    }
    check_dims(change, out);
    return change;
  }

 private:
  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    throw_error(ErrorCode::bad_input, "'", down_.name, "' and '", up_.name, "' are to change '", weight_.name,
                "', which ", parts...);
  }

  void check_parameters() const {
    for (const Value* const value : {&weight_, &down_, &up_})
      if (value->role != Role::parameter)
        throw_error(ErrorCode::bad_input, "a change of low rank is of three parameters, and '", value->name,
                    "' is none");
    if (down_.added_by.empty() || up_.added_by.empty()) refuse("only parameters of the strategy's own can");
    if (weight_.segment != down_.segment || weight_.segment != up_.segment) refuse("is in another segment");
    if (!weight_.frozen) refuse("is trained itself; freeze it (set_parameter)");
    if (down_.dims.size() < 2 || up_.dims.size() < 2 || down_.dims.front() != up_.dims.back())
      refuse("takes [rank, what is summed over] and [the rest, rank]");
  }

  void check_dims(const LowRankChange& change, std::size_t out) const {
    std::vector<Dim> made(weight_.dims.begin(), weight_.dims.begin() + static_cast<std::ptrdiff_t>(out));
    const std::span<const Dim> up(up_.dims.data(), up_.dims.size() - 1),
        down(down_.dims.data() + 1, change.in_dims);
    if (change.part < out) {
      if (change.begin < 0 || change.begin >= change.end || change.end > made[change.part].extent ||
          up.size() != out || up[change.part].extent != change.end - change.begin)
        refuse("has ", made[change.part].extent, " elements of '", said_.part.view(), "', not ", change.begin,
               " to ", change.end);
      made[change.part] = up[change.part];
    }
    if (out == 0 || !same_dims(made, up) || !same_dims(std::span(weight_.dims).subspan(out), down))
      refuse("has other dimensions than their product");
  }

  const LowRank& said_;
  const Value &weight_, &down_, &up_;
};

}  // namespace

void Program::set_foreign_weights(ForeignWeights weights) {
  foreign_weights_ = std::make_shared<const KeptForeignWeights>(std::move(weights));
}

ForeignWeightsView Program::foreign_weights() const {
  return foreign_weights_ ? foreign_weights_->view() : ForeignWeightsView{};
}

void Program::add_low_rank(const LowRank& change) {
  low_ranks_.push_back(ChangeReader(*this, change).read());
}

}  // namespace prun
