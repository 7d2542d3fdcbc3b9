BEGIN TRANSACTION;
CREATE TABLE accounts (
	run_id TEXT NOT NULL, 
	route TEXT NOT NULL, 
	received BIGINT NOT NULL, 
	recorded BIGINT NOT NULL, 
	in_flight BIGINT NOT NULL, 
	skipped TEXT NOT NULL, 
	started_at_us BIGINT NOT NULL, 
	updated_at_us BIGINT NOT NULL, 
	PRIMARY KEY (run_id, route)
);
INSERT INTO "accounts" VALUES('run-1','classify',4,3,0,'{"queue_full": 1}',1796066102321243,1796066102321243);
CREATE TABLE exchanges (
	sequence INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	id TEXT NOT NULL, 
	route TEXT NOT NULL, 
	received_at_us BIGINT NOT NULL, 
	client_request_id TEXT NOT NULL, 
	skipped TEXT, 
	method TEXT NOT NULL, 
	target BLOB NOT NULL, 
	headers TEXT NOT NULL, 
	body_sha256 TEXT NOT NULL, 
	body_size_bytes BIGINT NOT NULL, 
	body_media_type TEXT NOT NULL, 
	body_content_encoding TEXT NOT NULL, 
	body_inline BLOB, 
	UNIQUE (id)
);
INSERT INTO "exchanges" VALUES(1,'small','classify',1777896000000000,'',NULL,'POST',X'2F76312F636C617373696679','[["Host", "api.example"]]','b00a9cace55a8ed87bbe3ff72f9f47d84698927284ea60ccad8cae0fc070abdc',15,'','',X'6120736D616C6C2070696374757265');
INSERT INTO "exchanges" VALUES(2,'large','classify',1777896000000000,'',NULL,'POST',X'2F76312F636C617373696679','[["Host", "api.example"]]','834c64d1b8b7fd1b9e9651cd6d99aa3eeef86504cc8066cfa76b89d7f70a7188',12000,'','',NULL);
INSERT INTO "exchanges" VALUES(3,'unkept','classify',1777896000000000,'',NULL,'POST',X'2F76312F636C617373696679','[["Host", "api.example"]]','283bb9deef02e6843abfb538efa1eca70801bd8a701c3f98191e123496339247',4,'','',NULL);
CREATE TABLE observations (
	sequence INTEGER NOT NULL, 
	role TEXT NOT NULL, 
	backend TEXT NOT NULL, 
	server TEXT NOT NULL, 
	status INTEGER, 
	headers TEXT NOT NULL, 
	first_byte_s FLOAT, 
	total_s FLOAT, 
	arrivals_s TEXT NOT NULL, 
	failure_kind TEXT, 
	failure_detail TEXT, 
	body_sha256 TEXT, 
	body_size_bytes BIGINT, 
	body_media_type TEXT, 
	body_content_encoding TEXT, 
	body_inline BLOB, 
	PRIMARY KEY (sequence, role), 
	FOREIGN KEY(sequence) REFERENCES exchanges (sequence)
);
INSERT INTO "observations" VALUES(1,'primary','cloud','http://cloud',200,'[["Content-Type", "text/plain"]]',0.1,0.2,'[]',NULL,NULL,'8a798890fe93817163b10b5f7bd2ca4d25d84c52739a645a889c173eee7d9d3d',3,'','',X'796573');
INSERT INTO "observations" VALUES(1,'shadow','onprem','http://onprem',200,'[["Content-Type", "text/plain"]]',0.1,0.2,'[]',NULL,NULL,'8a798890fe93817163b10b5f7bd2ca4d25d84c52739a645a889c173eee7d9d3d',3,'','',X'796573');
INSERT INTO "observations" VALUES(2,'primary','cloud','http://cloud',200,'[["Content-Type", "text/plain"]]',0.1,0.2,'[]',NULL,NULL,'8a798890fe93817163b10b5f7bd2ca4d25d84c52739a645a889c173eee7d9d3d',3,'','',X'796573');
INSERT INTO "observations" VALUES(2,'shadow','onprem','http://onprem',200,'[["Content-Type", "text/plain"]]',0.1,0.2,'[]',NULL,NULL,'8a798890fe93817163b10b5f7bd2ca4d25d84c52739a645a889c173eee7d9d3d',3,'','',X'796573');
INSERT INTO "observations" VALUES(3,'primary','cloud','http://cloud',200,'[["Content-Type", "text/plain"]]',0.1,0.2,'[]',NULL,NULL,'8a798890fe93817163b10b5f7bd2ca4d25d84c52739a645a889c173eee7d9d3d',3,'','',X'796573');
INSERT INTO "observations" VALUES(3,'shadow','onprem','http://onprem',200,'[["Content-Type", "text/plain"]]',0.1,0.2,'[]',NULL,NULL,'8a798890fe93817163b10b5f7bd2ca4d25d84c52739a645a889c173eee7d9d3d',3,'','',X'796573');
CREATE INDEX exchanges_by_route ON exchanges (route, sequence);
CREATE INDEX exchanges_by_time ON exchanges (received_at_us);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('exchanges',3);
COMMIT;
PRAGMA user_version = 1;
