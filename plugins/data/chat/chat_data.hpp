// Makes samples of conversations: several share one sample where they fit, each after the token that ends the
// one before.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "chat/chat_encoder.hpp"
#include "prun/data.hpp"

namespace prun::chat {

// ------------------------------------------------------------------- chat data

class ChatData final : public Data {
 public:
  explicit ChatData(const Options& options);
  DataInfo open(std::int64_t seq) override;
  void read(std::int64_t index, std::int32_t* tokens, std::int32_t* targets) override;
  void roles(std::int64_t index, std::uint8_t* roles) override;

 private:
  // Counts what became of the conversations that did not stay whole.
  struct Counts {
    std::int64_t conversations = 0, tokens = 0, learned = 0, cut = 0, cut_tokens = 0, dropped = 0,
                 unlearned = 0;
  };
  struct Line {
    std::string text, place;
  };
  // Holds one conversation: each token with its role above its number, negative (~) where it is not learned.
  using Encoded = std::vector<std::int32_t>;

  std::vector<Line> read_lines() const;
  std::vector<Encoded> encode_all(const std::vector<Line>& lines) const;
  Encoded encode(const Line& line, ChatEncoder& encoder) const;
  bool fit(Encoded& tokens, const std::string& place);
  void keep(std::vector<Encoded> all, const std::vector<Line>& lines);
  void say() const;
  template <class Body>
  void each_token(std::int64_t index, Body&& body) const;

  std::filesystem::path path_, tokenizer_;
  std::string template_, date_;
  std::int32_t between_;
  Learned learned_;
  bool reasoning_, pack_;
  std::string too_long_;
  std::int32_t local_rank_, local_ranks_;

  std::int64_t seq_ = 0;
  Counts counts_;
  std::vector<std::int32_t> tokens_;                 // holds those of all conversations
  std::vector<std::size_t> begins_;                  // says where each begins in them, and the last ends
  std::vector<std::vector<std::uint32_t>> samples_;  // lists the conversations of each sample
};

// ------------------------------------------------------------------- packing
// Decides which conversations share a sample.

// Returns, for conversations of these lengths, each of at most `room`, the conversations of each sample,
// which take their lengths and one place between two. Early conversations stay early: each goes to the sample
// with the least room that it fits into, of the last few that were begun, or begins one. The result follows
// from lengths and room alone, and so is the same on every rank and in every run.
std::vector<std::vector<std::uint32_t>> pack(std::span<const std::int64_t> lengths, std::int64_t room);

}  // namespace prun::chat
