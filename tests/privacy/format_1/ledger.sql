PRAGMA application_id = 1885433197;
PRAGMA user_version = 1;
BEGIN TRANSACTION;
CREATE TABLE activity (job TEXT PRIMARY KEY, at REAL NOT NULL) STRICT;
INSERT INTO "activity" VALUES('11111111111111111111111111111111',1.79496049501004624362e+09);
INSERT INTO "activity" VALUES('22222222222222222222222222222222',1.79496049504740834241e+09);
INSERT INTO "activity" VALUES('33333333333333333333333333333333',1.79496049512284517289e+09);
INSERT INTO "activity" VALUES('44444444444444444444444444444444',1.79496049521946644776e+09);
INSERT INTO "activity" VALUES('',1.79496049523646974566e+09);
CREATE TABLE anchored (since REAL NOT NULL) STRICT;
INSERT INTO "anchored" VALUES(1.79496049499684500695e+09);
CREATE TABLE identity (fact TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
INSERT INTO "identity" VALUES('mode','"deployment"');
INSERT INTO "identity" VALUES('parties','[0]');
INSERT INTO "identity" VALUES('adjacency','"replace-one"');
INSERT INTO "identity" VALUES('budget','{"epsilon": 2.0, "delta": 1e-05}');
INSERT INTO "identity" VALUES('per_job','null');
INSERT INTO "identity" VALUES('algorithms','null');
INSERT INTO "identity" VALUES('row_bound','null');
CREATE TABLE intents (
        job TEXT NOT NULL, round INTEGER NOT NULL, phase INTEGER NOT NULL, inbox TEXT NOT NULL,
        charges TEXT NOT NULL) STRICT;
CREATE TABLE states (
        job TEXT PRIMARY KEY, round INTEGER NOT NULL, phase INTEGER NOT NULL, state BLOB NOT NULL) STRICT;
INSERT INTO "states" VALUES('11111111111111111111111111111111',2,0,X'73746174652032');
INSERT INTO "states" VALUES('22222222222222222222222222222222',0,0,X'73746174652030');
INSERT INTO "states" VALUES('33333333333333333333333333333333',0,0,X'73746174652030');
CREATE TABLE summaries (
        seq INTEGER PRIMARY KEY, job TEXT NOT NULL UNIQUE, account TEXT NOT NULL, seal TEXT NOT NULL) STRICT;
INSERT INTO "summaries" VALUES(4,'11111111111111111111111111111111','["[[[0], [[\"{\\\"kind\\\": \\\"grid_gaussian\\\", \\\"ratio\\\": 30.0}\", 3]]]]", "[[[0], [[\"{\\\"kind\\\": \\\"grid_gaussian\\\", \\\"ratio\\\": 30.0}\", 3]]]]", false, [2, 0, "adf17006ecaa3886494dfb9f87e7ea4ac3260c885b010d08de1bfa0aa346233c"], 0]','907f7ee0de50b210d901fecdcac8df8147f6d35112a964444a95e23295146684');
INSERT INTO "summaries" VALUES(6,'22222222222222222222222222222222','["[[[0], [[\"{\\\"kind\\\": \\\"grid_gaussian\\\", \\\"ratio\\\": 30.0}\", 1]]]]", "[[[0], [[\"{\\\"kind\\\": \\\"grid_gaussian\\\", \\\"ratio\\\": 30.0}\", 4]]]]", false, [0, 0, "110eb172e8fb0a476b18fddc50bc05771d426f44ee2a7b7ef9fe4ad01f21704c"], 0]','8b662fe3d32f57c4466a255d0bc60569f6a959642a842213ad7d7d67df72269d');
INSERT INTO "summaries" VALUES(9,'33333333333333333333333333333333','["[[[0], [[\"{\\\"kind\\\": \\\"grid_gaussian\\\", \\\"ratio\\\": 30.0}\", 1]]]]", "[[[0], [[\"{\\\"kind\\\": \\\"grid_gaussian\\\", \\\"ratio\\\": 30.0}\", 1]]]]", true, [0, 0, "110eb172e8fb0a476b18fddc50bc05771d426f44ee2a7b7ef9fe4ad01f21704c"], 0]','694f46e47d8f339d60ef68e77670c525b6e936d83011ab8a958244eafe5ea2bb');
INSERT INTO "summaries" VALUES(10,'','["[]", null, false, null, 0, 1]','dd5370cd2f4564bc8db2b02083e2b05fc99e283310bd0015d957709db9c5fb1b');
INSERT INTO "summaries" VALUES(12,'44444444444444444444444444444444','["[[[0], [[\"{\\\"kind\\\": \\\"grid_gaussian\\\", \\\"ratio\\\": 30.0}\", 1]]]]", "[[[0], [[\"{\\\"kind\\\": \\\"grid_gaussian\\\", \\\"ratio\\\": 30.0}\", 1]]]]", true, null, 0]','a87b405cfb4a938579dbd7ae19b03c769fa91b81608db78a73222ba72a2cd369');
CREATE TABLE ticks (
        seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, job TEXT NOT NULL, round INTEGER NOT NULL, phase INTEGER NOT NULL,
        inbox TEXT NOT NULL, charges TEXT NOT NULL, outbox BLOB NOT NULL, state TEXT NOT NULL, hash TEXT NOT NULL,
        UNIQUE (job, kind, round, phase)) STRICT;
INSERT INTO "ticks" VALUES(1,'reserve','11111111111111111111111111111111',-1,-1,'','[[[0], [["{\"kind\": \"grid_gaussian\", \"ratio\": 30.0}", 3]]]]',X'','','031e2761092ec5aba1c75b83c72b8a2df9fe7e1ccec5d3043dc1c08b969f5ab1');
INSERT INTO "ticks" VALUES(2,'tick','11111111111111111111111111111111',0,0,'in 0','[[[0], [["{\"kind\": \"grid_gaussian\", \"ratio\": 30.0}", 1]]]]',X'6F7574','110eb172e8fb0a476b18fddc50bc05771d426f44ee2a7b7ef9fe4ad01f21704c','8b3fac82d3f5b5713ade67b5e8f9fc5df8b0d4eba5d452717845fc3d9d3f72fa');
INSERT INTO "ticks" VALUES(3,'tick','11111111111111111111111111111111',1,0,'in 1','[[[0], [["{\"kind\": \"grid_gaussian\", \"ratio\": 30.0}", 1]]]]',X'6F7574','376c237917d7644ce879e12ab6bb36cb362b27bab06ad20d060bc46189d077cf','eec471171f10a091babc922aa18a0ac928b98c86a496c31fa9047e67233e1dbe');
INSERT INTO "ticks" VALUES(4,'tick','11111111111111111111111111111111',2,0,'in 2','[[[0], [["{\"kind\": \"grid_gaussian\", \"ratio\": 30.0}", 1]]]]',X'6F7574','adf17006ecaa3886494dfb9f87e7ea4ac3260c885b010d08de1bfa0aa346233c','e0c4ea2338277af13a867c483ac451ee7373da688bc6526aa3a871cc1433d024');
INSERT INTO "ticks" VALUES(5,'reserve','22222222222222222222222222222222',-1,-1,'','[[[0], [["{\"kind\": \"grid_gaussian\", \"ratio\": 30.0}", 4]]]]',X'','','5eab4ac4430d81de44c3a444f7bd9b0c039edfa2862c4f2ccae10ba2d5190323');
INSERT INTO "ticks" VALUES(6,'tick','22222222222222222222222222222222',0,0,'in 0','[[[0], [["{\"kind\": \"grid_gaussian\", \"ratio\": 30.0}", 1]]]]',X'6F7574','110eb172e8fb0a476b18fddc50bc05771d426f44ee2a7b7ef9fe4ad01f21704c','06e373f6b0dea9b2a49440462a3fab88914cf6d47684f60fe3abbf8641484bf6');
INSERT INTO "ticks" VALUES(7,'reserve','33333333333333333333333333333333',-1,-1,'','[[[0], [["{\"kind\": \"grid_gaussian\", \"ratio\": 30.0}", 2]]]]',X'','','bfd2e1e0145ea1bcb731cd70d9423901bedd03865517073d65e5cf83bff88d17');
INSERT INTO "ticks" VALUES(8,'tick','33333333333333333333333333333333',0,0,'in 0','[[[0], [["{\"kind\": \"grid_gaussian\", \"ratio\": 30.0}", 1]]]]',X'6F7574','110eb172e8fb0a476b18fddc50bc05771d426f44ee2a7b7ef9fe4ad01f21704c','447f7abaf2ba4e234f64ef5ff3da177c6357964a9eac19eea8d0c986a633743f');
INSERT INTO "ticks" VALUES(9,'close','33333333333333333333333333333333',-1,-1,'','[]',X'','','d695e60dabb2a179b8395f4b9d89a42f806ffb4dedb844897f047e9aa8cc96fb');
INSERT INTO "ticks" VALUES(10,'amend','',-1,0,'consent of 3 March','[]',X'7B226D6F6465223A20225C226465706C6F796D656E745C22222C202270617274696573223A20225B305D222C202261646A6163656E6379223A20225C227265706C6163652D6F6E655C22222C2022627564676574223A20227B5C22657073696C6F6E5C223A20332E302C205C2264656C74615C223A2031652D30357D222C20227065725F6A6F62223A20226E756C6C222C2022616C676F726974686D73223A20226E756C6C222C2022726F775F626F756E64223A20226E756C6C227D','','ff58abfca5ae1a5baddd056a71576ef804cd509032eb9957f8edac99c59041b5');
INSERT INTO "ticks" VALUES(11,'reserve','44444444444444444444444444444444',-1,-1,'','[[[0], [["{\"kind\": \"grid_gaussian\", \"ratio\": 30.0}", 2]]]]',X'','','ba52c8acd32c91eded071b329853cad5bb0c1d5aef6b9dc975e932b2912f522c');
INSERT INTO "ticks" VALUES(12,'fail','44444444444444444444444444444444',0,0,'in','[[[0], [["{\"kind\": \"grid_gaussian\", \"ratio\": 30.0}", 1]]]]',X'69D95634BEC8D5D436714222347C223E74090E79093DF6A9E3E66852B211AFF461206D6164652D7570206661696C757265','','09a04b5d3b12331d28ecb3289a0ebb305a36b563296d42d235df14c23b004a5a');
INSERT INTO "ticks" VALUES(13,'unlock','',-1,0,'a test','[]',X'','','f617f5cd0e5a53a7e089bbac7a6462f3f5469b73654c20f5c1f81570de752a5d');
CREATE INDEX locks ON ticks (seq) WHERE kind IN ('fail', 'unlock');
CREATE INDEX doubts ON ticks (seq) WHERE kind IN ('behind', 'restore');
CREATE INDEX amendments ON ticks (seq) WHERE kind = 'amend';
COMMIT;
