// What is written between the messages of a chat.
#ifndef SEQLAB_CHAT_H_
#define SEQLAB_CHAT_H_

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "json_fields.h"
#include "seqlab/runtime.h"

namespace seqlab {

class Tokenizer;

// The parts between two roles, "start" and "answer" included; `seqlab_data.tokenizers.chat` writes them.
class ChatFormat {
 public:
  // Throws Refusal if the field describes no format, or an id is outside the vocabulary.
  ChatFormat(const Field& field, int64_t vocab_size);

  // Returns the ids of a chat, up to where the answer begins. A special token in a message is plain text. Throws
  // Refusal if a role is unknown or may not follow the one before it, or a message is not UTF-8.
  Ids Encode(const Tokenizer& tokenizer, const std::vector<Message>& messages) const;

 private:
  using Part = std::variant<std::string, int64_t>;  // plain text, or a special token

  std::map<std::pair<std::string, std::string>, std::vector<Part>> joints_;
  std::set<std::string> stripped_;  // roles whose messages lose the whitespace around them
};

}  // namespace seqlab

#endif  // SEQLAB_CHAT_H_
