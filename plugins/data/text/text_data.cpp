// Cuts the corpus into samples.
#include "text_data.hpp"

namespace prun::text {

TextData::TextData(const Options& options)
    : rules_{options.text("path"), options.texts("extensions"), options.texts("exclude"),
             static_cast<std::uint64_t>(options.integer("max_bytes"))} {}

DataInfo TextData::open(std::int64_t seq) {
  PRUN_CHECK(seq > 0, "text data opened for sequences of ", seq, " tokens");
  corpus_ = load_corpus(rules_);
  seq_ = seq;
  const auto bytes = static_cast<std::int64_t>(corpus_.size());
  samples_ = bytes > 0 ? (bytes - 1) / seq : 0;
  if (samples_ == 0)
    throw_error(ErrorCode::bad_input, rules_.path.string(), ": ", bytes,
                " bytes are too few for one sample of ", seq,
                " tokens and the byte after them; give more text or a shorter seq");
  return {samples_, bytes, 256};
}

void TextData::read(std::int64_t index, std::int32_t* tokens, std::int32_t* targets) {
  PRUN_CHECK(index >= 0 && index < samples_, "text sample ", index, " of ", samples_);
  const char* bytes = corpus_.data() + index * seq_;
  for (std::int64_t i = 0; i < seq_; ++i) {
    tokens[i] = static_cast<unsigned char>(bytes[i]);
    targets[i] = static_cast<unsigned char>(bytes[i + 1]);
  }
}

}  // namespace prun::text
