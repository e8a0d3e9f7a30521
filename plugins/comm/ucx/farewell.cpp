// Each member has one receive, posted from the start.
#include "farewell.hpp"

#include "tags.hpp"

namespace prun::ucx {
namespace {

constexpr std::chrono::milliseconds patience{200};

std::uint64_t tag_of(std::int32_t sender) { return add_message(make_tag(Traffic::farewell, 0), sender, 0); }

}  // namespace

Farewells::Farewells(std::int32_t rank, std::int32_t size)
    : rank_(rank), heard_(static_cast<std::size_t>(size)), said_(static_cast<std::size_t>(size)) {}

void Farewells::listen(Wire& wire) {
  for (std::size_t i = 0; i < heard_.size(); ++i) {
    heard_[i].listener = said_[i].listener = this;
    const auto member = static_cast<std::int32_t>(i);
    if (member != rank_) wire.post_receive(tag_of(member), &heard_[i].message, sizeof(Farewell), heard_[i]);
  }
}

void Farewells::say(Wire& wire) {
  for (std::size_t i = 0; i < said_.size(); ++i) {
    const auto member = static_cast<std::int32_t>(i);
    if (member != rank_ && !heard_[i].done && wire.state_of(member) == UCS_OK)
      wire.post_send(member, tag_of(rank_), &said_[i].message, sizeof(Farewell), said_[i]);
  }
  settle(wire, said_);
  settle(wire, heard_);  // most leave together: what arrives after the cancelling would be an orphan
  for (Note& note : heard_) wire.cancel(note);
  settle(wire, heard_);
}

void Farewells::settle(Wire& wire, const std::vector<Note>& notes) {
  const auto end = std::chrono::steady_clock::now() + patience;
  for (const Note& note : notes) wire.progress_while([&] { return note.request != nullptr; }, end);
}

void Farewells::on_done(Transfer& transfer, ucs_status_t status) noexcept {
  if (status == UCS_OK) static_cast<Note&>(transfer).done = true;
}

}  // namespace prun::ucx
